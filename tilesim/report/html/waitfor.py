"""The wait-for graph of a deadlock as SVG: which warps wait, on what, and what could end that."""

from __future__ import annotations

from math import cos, hypot, pi, sin

from tilesim.records import dataclass, field
from tilesim.report.html.svg import CHARACTER, LINE, Svg, cut
from tilesim.report.story import short
from tilesim.sim.observers.timeline import Releaser, Waiter

_MOST = 10
_LABEL = 44
#: width of a character of a label
_SMALL = 6.2
NO_WARP = "no warp that is still alive"


@dataclass
class _Node:
    """A group of warps, or the absence of one."""

    rows: list[str]
    x: float = 0.0
    y: float = 0.0
    stuck: bool = True
    edges: list[tuple[int, str]] = field(default_factory=list)

    @property
    def width(self) -> float:
        return max(map(len, self.rows)) * CHARACTER + 16

    @property
    def height(self) -> float:
        return len(self.rows) * LINE + 8


def draw(every: tuple[Waiter, ...]) -> Svg | None:
    """The graph; None if no warp waits for ever."""
    waiters = every[:_MOST]
    if not waiters:
        return None
    nodes = [_Node([w.name, w.text, f"at {short(w.loc)}"]) for w in waiters]
    for number, waiter in enumerate(waiters):
        for releaser in waiter.releasers:
            target = _find(waiters, releaser)
            if target is None:
                target = _other(nodes, [releaser.name, releaser.state])
            edge = target, waiter.state or waiter.on
            if edge not in nodes[number].edges:
                nodes[number].edges.append(edge)
        if not waiter.releasers:
            target = _other(nodes, [NO_WARP, f"arrives on {waiter.on}" if waiter.on else "helps"])
            nodes[number].edges.append((target, waiter.state))
    svg = Svg("Wait-for graph: each arrow goes to what could end the wait")
    _layout(nodes)
    labels = [
        _edge(svg, node, nodes[target], text) for node in nodes for target, text in node.edges
    ]
    for node in nodes:
        _draw(svg, node)
    for x, y, text in labels:
        half = len(text) * _SMALL / 2 + 3
        svg.rect(x - half, y - 12, 2 * half, 16, "paper")
        svg.text(x, y, text, "small dim", "middle")
    if len(every) > _MOST:
        more = len(every) - _MOST
        svg.text(8, svg.height + LINE, f"and {more} more groups of warps that wait", "dim")
    return svg


def _find(waiters: tuple[Waiter, ...], releaser: Releaser) -> int | None:
    """The waiter that the releaser is itself."""
    for number, w in enumerate(waiters):
        same = (w.role, w.cta) == (releaser.role, releaser.cta)
        if same and releaser.state == f"{w.text} at {w.loc}":
            return number
    return None


def _other(nodes: list[_Node], rows: list[str]) -> int:
    """The node for a warp that does not wait itself."""
    for number, node in enumerate(nodes):
        if node.rows == rows:
            return number
    nodes.append(_Node(rows, stuck=False))
    return len(nodes) - 1


def _layout(nodes: list[_Node]) -> None:
    """On an ellipse, the first on the left; wide enough for the labels between two."""
    wide = max(node.width for node in nodes)
    count = len(nodes)
    room = wide + _LABEL * _SMALL
    a = max(room / (2 if count < 3 else 1.4), count * wide / 5)
    b = 0.0 if count < 3 else max(90.0, count * 28.0)
    for number, node in enumerate(nodes):
        angle = pi + 2 * pi * number / count
        node.x = 8 + wide / 2 + a + a * cos(angle)
        node.y = 60 + b + b * sin(angle)


def _edge(svg: Svg, start: _Node, end: _Node, text: str) -> tuple[float, float, str]:
    """An arrow that bends to one side, so that two opposite ones stay apart; where its label is."""
    if start is end:
        x, y = start.x, start.y - start.height / 2
        svg.path(f"M{x - 20:.1f} {y:.1f}c-10 -40 50 -40 40 0", "edge bad", arrow="bad")
        return x, y - 34, cut(text, _LABEL)
    dx, dy = end.x - start.x, end.y - start.y
    length = hypot(dx, dy) or 1.0
    bend = min(60.0, length / 5)
    middle = (start.x + end.x) / 2 - dy / length * bend, (start.y + end.y) / 2 + dx / length * bend
    x1, y1 = _border(start, middle)
    x2, y2 = _border(end, middle)
    path = f"M{x1:.1f} {y1:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {x2:.1f} {y2:.1f}"
    svg.path(path, "edge bad", arrow="bad")
    x, y = (x1 + 2 * middle[0] + x2) / 4, (y1 + 2 * middle[1] + y2) / 4
    return x, y + 4, cut(text, _LABEL)


def _border(node: _Node, towards: tuple[float, float]) -> tuple[float, float]:
    """Where a line from the node's middle leaves its box."""
    dx, dy = towards[0] - node.x, towards[1] - node.y
    scale = min(
        node.width / 2 / abs(dx) if dx else float("inf"),
        node.height / 2 / abs(dy) if dy else float("inf"),
    )
    return node.x + dx * scale, node.y + dy * scale


def _draw(svg: Svg, node: _Node) -> None:
    x, y = node.x - node.width / 2, node.y - node.height / 2
    svg.rect(x, y, node.width, node.height, "box", round_=5)
    for number, text in enumerate(node.rows):
        css = ("bold" if node.stuck else "bold bad") if number == 0 else "dim"
        svg.text(x + 8, y + (number + 1) * LINE - 2, text, css)
