"""The barrier protocol of a program: what arrives, completes or waits on which barrier.

Read from the instructions' effects, so it shows what the program says, not one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, constant
from tilesim.ir.op import Op
from tilesim.ir.program import Program, Role, Stmt, children
from tilesim.records import dataclass, field
from tilesim.report.html.svg import CHARACTER, LINE, Svg

EVERYONE = "all warps"
_GAP, _PAD = 90.0, 8.0


@dataclass(frozen=True)
class Link:
    """``role`` does ``what`` to ``barrier``: arrives, expects, has copies complete, waits."""

    role: str
    barrier: str
    what: str
    kind: str
    remote: bool = False

    @property
    def label(self) -> str:
        """What the role's box says."""
        return f"{self.what} (cluster)" if self.remote else self.what


@dataclass
class Protocol:
    """All links of a program, and the arrival counts that barriers are initialised with."""

    links: dict[Link, None] = field(default_factory=dict)
    counts: dict[str, dict[str, None]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def arrivals(self) -> list[Link]:
        """What moves barriers on."""
        return [link for link in self.links if link.kind != "wait"]

    @property
    def waits(self) -> list[Link]:
        """What barriers hold back."""
        return [link for link in self.links if link.kind == "wait"]


def protocol(program: Program) -> Protocol:
    """The links of all instructions, by outermost role."""
    result = Protocol()
    for role, op in _instructions(program.body, ""):
        for effect in op.effects():
            if isinstance(effect, fx.InitsMbarrier):
                array = effect.mbar.array
                result.counts.setdefault(array.name, {})[str(effect.count)] = None
                result.sizes[array.name] = array.count
        result.links.update(dict.fromkeys(_links(role, op)))
    return result


def _links(role: str, op: Op) -> Iterator[Link]:
    """What one instruction does."""
    return (link for effect in op.effects() if (link := _link(role, op, effect)) is not None)


def _instructions(body: Iterable[Stmt], role: str) -> Iterator[tuple[str, Op]]:
    for stmt in body:
        inside = role
        if isinstance(stmt, Role) and not role and not stmt.name.startswith("warp "):
            inside = stmt.name
        if isinstance(stmt, Op):
            yield role or EVERYONE, stmt
        for region in children(stmt):
            yield from _instructions(region, inside)


def _link(role: str, op: Op, effect: fx.Effect) -> Link | None:
    remote = getattr(getattr(effect, "mbar", None), "cta", None) is not None
    match effect:
        case fx.Arrives(mbar=mbar, bytes=size, asynchronous=later, drop=drop, multicast=mask):
            what = f"{op.mnemonic} arrives" if later else "arrive_drop" if drop else "arrives"
            if size is not None:
                what += f", expects {_bytes(size)}"
            kind = "copy" if later else "run"
            return Link(role, mbar.array.name, what, kind, remote or mask is not None)
        case fx.Expects(mbar=mbar, bytes=size):
            return Link(role, mbar.array.name, f"expects {_bytes(size)}", "run", remote)
        case fx.Completes(mbar=mbar, bytes=size, multicast=mask):
            what = f"{_copy(op)} completes {_bytes(size)}"
            return Link(role, mbar.array.name, what, "copy", remote or mask is not None)
        case fx.Waits(mbar=mbar, poll=poll):
            return Link(role, mbar.array.name, "polls" if poll else "waits", "wait")
        case _:
            return None


def _copy(op: Op) -> str:
    target = getattr(op, "dst", None)
    name = getattr(getattr(target, "tensor", None), "name", "")
    return f"copy to {name}" if name else op.mnemonic


def _bytes(size: Expr | None) -> str:
    known = None if size is None else constant(size)
    return "bytes" if known is None else f"{known:,} bytes"


# ---------------------------------------------------------------------- drawing


@dataclass
class _Box:
    """A titled box with rows; a row is where its link starts or ends."""

    title: str
    rows: list[str]
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(len(t) for t in (self.title, *self.rows)) * CHARACTER + 2 * _PAD

    @property
    def height(self) -> float:
        return (len(self.rows) + 1) * LINE + _PAD

    def row(self, text: str) -> float:
        """The middle of a row."""
        return self.y + (self.rows.index(text) + 1.5) * LINE + 2


def draw(program: Program) -> Svg | None:
    """The protocol as SVG: arrivals on the left, barriers, waits on the right; None without any."""
    found = protocol(program)
    if not found.links:
        return None
    names = dict.fromkeys(link.barrier for link in (*found.arrivals, *found.waits))
    left = _boxes((link.role, f"{link.barrier}: {link.label}") for link in found.arrivals)
    right = _boxes((link.role, f"{link.label} on {link.barrier}") for link in found.waits)
    middle = [_Box(_array(name, found), [_count(name, found)]) for name in names]
    svg = Svg(f"Barriers of {program.name}: arrivals and waits")
    x = 8.0
    for column, title in ((left, "arrive"), (middle, "mbarriers"), (right, "wait")):
        x = _place(svg, column, title, x)
    tall = max(_bottom(c) for c in (left, middle, right))
    for column in (left, middle, right):
        shift = (tall - _bottom(column)) / 2
        for box in column:
            box.y += shift
    place = dict(zip(names, middle, strict=True))
    for link in found.arrivals:
        box = next(b for b in left if b.title == link.role)
        start = box.x + box.width, box.row(f"{link.barrier}: {link.label}")
        target = place[link.barrier]
        css = "edge copy" if link.kind == "copy" else "edge"
        arrow = "copy" if link.kind == "copy" else "run"
        svg.curve(start, (target.x, target.y + target.height / 2), css, arrow=arrow)
    for link in found.waits:
        box = next(b for b in right if b.title == link.role)
        source = place[link.barrier]
        start = source.x + source.width, source.y + source.height / 2
        end = box.x, box.row(f"{link.label} on {link.barrier}")
        svg.curve(start, end, "edge good", arrow="good")
    for box in (*left, *middle, *right):
        _draw(svg, box)
    return svg


def drawn(program: Program) -> str:
    """The same as the element of a page; empty without any barriers."""
    picture = draw(program)
    return "" if picture is None else picture.element()


def _boxes(rows: Iterable[tuple[str, str]]) -> list[_Box]:
    boxes: dict[str, _Box] = {}
    for role, text in rows:
        box = boxes.setdefault(role, _Box(role, []))
        if text not in box.rows:
            box.rows.append(text)
    return list(boxes.values())


def _place(svg: Svg, column: list[_Box], title: str, x: float) -> float:
    """Stacks a column; where the next one starts."""
    svg.text(x, 14, title, "dim")
    y = 24.0
    for box in column:
        box.x, box.y = x, y
        y += box.height + 14
    wide = max((box.width for box in column), default=len(title) * CHARACTER)
    return x + wide + _GAP


def _bottom(column: list[_Box]) -> float:
    return max((box.y + box.height for box in column), default=0.0)


def _draw(svg: Svg, box: _Box) -> None:
    svg.rect(box.x, box.y, box.width, box.height, "box", round_=5)
    svg.text(box.x + _PAD, box.y + LINE - 2, box.title, "bold")
    for number, text in enumerate(box.rows, 2):
        svg.text(box.x + _PAD, box.y + number * LINE - 2, text, "dim")


def _array(name: str, found: Protocol) -> str:
    size = found.sizes.get(name, 1)
    return f"{name}[0..{size - 1}]" if size > 1 else name


def _count(name: str, found: Protocol) -> str:
    counts = ", ".join(found.counts.get(name, {}))
    return f"init {counts}" if counts else "never initialised"
