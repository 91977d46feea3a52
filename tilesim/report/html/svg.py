"""SVG pictures as text: every string is escaped, every picture has a title, nothing is random."""

from __future__ import annotations

from html import escape

#: width of a character of the monospaced font, which layouts rely on
CHARACTER = 7.3
LINE = 17.0

#: colours, by role in a picture; the dark ones replace them where the reader prefers dark
LIGHT = {
    "ink": "#1c2430", "dim": "#5b6675", "paper": "#ffffff", "panel": "#f3f5f8",
    "line": "#c9d1db", "run": "#4c7fd6", "wait": "#d9dee6", "stuck": "#d64545",
    "engine": "#e0912f", "copy": "#b86a10", "good": "#2f9461", "warn": "#a77400",
}  # fmt: skip
DARK = {
    "ink": "#e6eaf0", "dim": "#9aa5b4", "paper": "#14181f", "panel": "#1d232c",
    "line": "#3a4452", "run": "#5b8de0", "wait": "#39424f", "stuck": "#e06060",
    "engine": "#d98f35", "copy": "#e0a050", "good": "#4cb782", "warn": "#d6a634",
}  # fmt: skip

_RULES = """\
.tilesim text { font: 12px ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace;
  fill: var(--ink) }
.tilesim .dim { fill: var(--dim) }
.tilesim .bold { font-weight: bold }
.tilesim .small { font-size: 10px }
.tilesim .on { fill: #fff }
.tilesim .box { fill: var(--panel); stroke: var(--line) }
.tilesim .paper { fill: var(--paper) }
.tilesim .rule { stroke: var(--line); fill: none }
.tilesim .run { fill: var(--run) }
.tilesim .wait { fill: var(--wait) }
.tilesim .stuck { fill: var(--stuck) }
.tilesim .engine { fill: var(--engine) }
.tilesim .odd { fill: var(--line) }
.tilesim .even { fill: var(--panel) }
.tilesim .edge { fill: none; stroke: var(--run); stroke-width: 1.5 }
.tilesim .edge.copy { stroke: var(--copy); stroke-dasharray: 5 3 }
.tilesim .edge.good { stroke: var(--good) }
.tilesim .edge.bad { stroke: var(--stuck) }
.tilesim .flow { fill: none; stroke: var(--dim); stroke-width: 0.8; opacity: 0.7 }
.tilesim text.bad, .tilesim .head.bad { fill: var(--stuck) }
.tilesim .head.run { fill: var(--run) }
.tilesim .head.copy { fill: var(--copy) }
.tilesim .head.good { fill: var(--good) }
"""


def variables(colours: dict[str, str]) -> str:
    """CSS variables of a set of colours."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def style() -> str:
    """The rules that pictures rely on; a page has them once, a picture of its own too."""
    return (
        f":root {{ {variables(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}\n{_RULES}"
    )


class Svg:
    """A picture that grows by shapes; `text` gives the element for a page, or a file."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []
        self.width = 0.0
        self.height = 0.0

    def rect(
        self, x: float, y: float, width: float, height: float, css: str, *,
        round_: float = 0, tip: str = "",
    ) -> None:  # fmt: skip
        """A rectangle; ``tip`` is shown when the pointer rests on it."""
        shape = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
        if round_:
            shape += f' rx="{_n(round_)}"'
        end = f"><title>{escape(tip)}</title></rect>" if tip else "/>"
        self._parts.append(f'<rect class="{css}" {shape}{end}')
        self._grow(x + width, y + height)

    def text(self, x: float, y: float, text: str, css: str = "", anchor: str = "start") -> None:
        """One line of text, its baseline at ``y``."""
        kind = f' class="{css}"' if css else ""
        where = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._parts.append(f'<text{kind} x="{_n(x)}" y="{_n(y)}"{where}>{escape(text)}</text>')
        if anchor == "start":
            self._grow(x + len(text) * CHARACTER, y + 4)

    def path(self, data: str, css: str, *, arrow: str = "") -> None:
        """A path; ``arrow`` names its head (see `_HEADS`)."""
        head = f' marker-end="url(#head-{arrow})"' if arrow else ""
        self._parts.append(f'<path class="{css}" d="{data}"{head}/>')

    def curve(
        self, start: tuple[float, float], end: tuple[float, float], css: str, *, arrow: str = ""
    ) -> None:
        """A horizontal S from one point to another."""
        (x1, y1), (x2, y2) = start, end
        bend = max(24.0, abs(x2 - x1) / 2)
        self.path(
            f"M{_n(x1)} {_n(y1)}C{_n(x1 + bend)} {_n(y1)} {_n(x2 - bend)} {_n(y2)} "
            f"{_n(x2)} {_n(y2)}",
            css, arrow=arrow,
        )  # fmt: skip

    def element(self) -> str:
        """For a page that has the `style`."""
        return self._svg("", "")

    def file(self) -> str:
        """As a file of its own, on a background."""
        paper = f'<rect class="paper" width="{_n(self._w)}" height="{_n(self._h)}"/>'
        head = '<?xml version="1.0" encoding="utf-8"?>\n'
        return head + self._svg(f"<style>{escape(style(), quote=False)}</style>", paper) + "\n"

    @property
    def _w(self) -> float:
        return self.width + 8

    @property
    def _h(self) -> float:
        return self.height + 8

    def _svg(self, css: str, paper: str) -> str:
        size = f'width="{_n(self._w)}" height="{_n(self._h)}"'
        box = f'viewBox="0 0 {_n(self._w)} {_n(self._h)}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tilesim" role="img" {size} {box}>'
            f"<title>{escape(self._title)}</title>{css}{_HEADS}{paper}"
            + "\n".join(self._parts)
            + "</svg>"
        )

    def _grow(self, x: float, y: float) -> None:
        self.width = max(self.width, x)
        self.height = max(self.height, y)


def _head(name: str, css: str) -> str:
    return (
        f'<marker id="head-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto-start-reverse"><path class="head {css}" '
        'd="M0 0L8 4L0 8z"/></marker>'
    )


_HEADS = (
    "<defs>"
    + "".join(
        _head(name, css)
        for name, css in (("run", "run"), ("copy", "copy"), ("good", "good"), ("bad", "bad"))
    )
    + "</defs>"
)


def _n(value: float) -> str:
    """A coordinate: two decimals at most, no needless zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def cut(text: str, characters: float) -> str:
    """``text``, shortened to so many characters."""
    room = max(0, int(characters))
    return text if len(text) <= room else text[: room - 1] + "…" if room > 1 else ""
