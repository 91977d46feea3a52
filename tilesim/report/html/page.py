"""The page: its style, and the parts of a result as HTML. Everything from users is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from tilesim.findings.finding import Finding
from tilesim.findings.rules import RULE_DOCS
from tilesim.findings.sides import doing
from tilesim.ir.loc import Loc
from tilesim.layout import excerpt
from tilesim.repair import Repairs
from tilesim.report.html import timeline, waitfor
from tilesim.report.html.svg import style
from tilesim.report.result import Checked, Failure, Rejected, Result
from tilesim.report.source import places
from tilesim.report.story import Story, barriers_of, of_result, short, tell, timeline_of
from tilesim.report.text import Folded, conditions, fold, verdict_of
from tilesim.sim.observers.timeline import Timeline
from tilesim.wording import count

_AROUND = 3
_ROWS = 60
_COLOUR = {"proved": "good", "exhausted": "good", "bounded": "warn", "unsupported": "warn"}
_LEGEND = (
    "blue: instructions; grey: waits; orange: copies and tensor core; red: waits that never end; "
    "lines: from an arrival to the wait it ends. Below: the phases of the mbarriers."
)

_TOO_LONG = "The run is too long to be drawn here: tilesim trace records it."

CSS = """\
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif }
main { max-width: 1120px; margin: 0 auto; padding: 24px 20px 60px }
h1 { font-size: 22px } h2 { font-size: 18px; margin: 0 0 6px; overflow-wrap: anywhere }
h3 { font-size: 15px; margin: 20px 0 6px }
section { border: 1px solid var(--line); border-radius: 8px; padding: 16px 20px; margin: 20px 0 }
code, pre, td.code { font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono",
  monospace }
pre { background: var(--panel); padding: 8px 12px; overflow-x: auto; border-radius: 6px;
  margin: 4px 0 }
pre .hit { display: block; background: var(--wait); font-weight: bold }
pre .number { color: var(--dim); user-select: none }
.badge { display: inline-block; padding: 1px 10px; border-radius: 10px; color: #fff;
  font-size: 13px; background: var(--stuck); margin-right: 8px }
.badge.good { background: var(--good) } .badge.warn { background: var(--warn) }
.dim { color: var(--dim) } .scroll { overflow-x: auto }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 8px 0 }
dt { color: var(--dim) } dd { margin: 0; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: 2px 10px 2px 0; vertical-align: top }
.contents { width: auto }
.story td, .story th { border-top: 1px solid var(--line) } .story td.fatal { color: var(--stuck) }
.note { white-space: pre-wrap; margin: 0 } summary { cursor: pointer }
a { color: var(--run) } td.code { overflow-wrap: anywhere }
details { margin: 12px 0 } summary { font-weight: bold }
.story td { min-width: 8em } .story td:first-child { min-width: 0 }
@media (max-width: 600px) {
  main { padding: 8px 8px 40px } section { padding: 10px 12px; margin: 12px 0 }
  dl { display: block } dd { margin: 0 0 6px }
  .contents td { display: block; padding: 0 } .contents td.code { padding-bottom: 8px }
}
"""

#: culprits that are shown
_CULPRITS = 3


def page(results: tuple[Result, ...]) -> str:
    """The whole document."""
    body = "\n".join(part for n, result in enumerate(results) for part in _result(result, n))
    contents = _contents(results) if len(results) > 1 else ""
    return document("tilesim report", f"{contents}{body}")


def document(title: str, body: str) -> str:
    """A page of its own, which needs nothing else."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f"<style>\n{style()}{CSS}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n"
        f"{body}\n</main>\n</body>\n</html>\n"
    )


def _contents(results: tuple[Result, ...]) -> str:
    rows = "\n".join(
        f'<tr><td>{_badge(r)}</td><td class="code"><a href="#r{n}">{escape(r.kernel)}</a>'
        f"{_configuration(r)}</td></tr>"
        for n, r in enumerate(results)
    )
    return f'<table class="contents">\n{rows}\n</table>\n'


def _configuration(result: Result) -> str:
    said = result.configuration if isinstance(result, Checked) else ""
    return f'<div class="dim">{escape(said)}</div>' if said else ""


def _badge(result: Result) -> str:
    verdict = verdict_of(result)
    given = conditions(result)
    if isinstance(result, Checked) and result.report.for_all and not result.denied:
        colour = _COLOUR["bounded"] if given and verdict != "failed" else _COLOUR.get(verdict, "")
        return f'<span class="badge {colour}">{escape(result.report.said)}</span>'
    if given and not (isinstance(result, Checked) and result.denied):
        said = escape(f"{verdict}, leaning on {', '.join(given)}")
        return f'<span class="badge {_COLOUR["bounded"]}">{said}</span>'
    return f'<span class="badge {_COLOUR.get(verdict, "")}">{verdict}</span>'


def _result(result: Result, number: int) -> Iterator[str]:
    yield f'<section id="r{number}">'
    yield f"<h2>{_badge(result)}<code>{escape(result.kernel)}</code></h2>"
    match result:
        case Checked():
            yield from _checked(result)
        case Rejected(diagnostics=diagnostics):
            for d in diagnostics:
                yield f"<h3>{escape(d.rule)}: {escape(d.message)}</h3>"
                yield code(d.loc)
                yield table([("fix", d.fix)])
        case Failure(message=message):
            yield f"<pre>{escape(message)}</pre>"
    yield "</section>"


def _checked(result: Checked) -> Iterator[str]:
    report = result.report
    stats = report.stats
    cost = (
        f"{count(stats.instructions, 'warp instruction')}, {count(stats.schedules, 'schedule')}, "
        f"{count(stats.ctas, 'CTA')}"
    )
    compared = "" if result.machine_code is None else result.machine_code.said
    rows = [
        ("covers", report.covers),
        ("machine code", compared),
        *(("because", r) for r in report.reasons),
    ]
    about = table([*rows, ("target", result.target), ("cost", cost), ("replay", result.replay)])
    if not report.findings:
        yield about
    for leaning in report.leanings:
        if leaning.conditional or leaning in result.denied:
            yield f"<h3>{escape(leaning.name)}: {escape(leaning.text)}</h3>"
            yield from map(code, leaning.locs)
    for folded in fold(report.findings):
        yield from of_finding(folded)
    if report.repairs is not None:
        yield from of_repairs(report.repairs)
    yield from _pictures(result)
    if report.witness is not None and result.recording is None:
        yield f'<p class="dim">{_TOO_LONG}</p>'
    if report.findings:
        yield about


def of_finding(folded: Folded) -> Iterator[str]:
    """A finding: its cause and what to change, both sides with their lines, and notes."""
    finding = folded.finding
    yield f"<h3>{escape(finding.rule)}: {escape(finding.message)}</h3>"
    yield table([("cause", finding.cause), ("fix", finding.fix)])
    several = len({p.cta for p in finding.participants}) > 1
    shown: set[Loc] = set()
    for p in (*finding.culprits[:_CULPRITS], *finding.participants):
        place = [f"CTA {p.cta}"] if several or p.cta else []
        if p.warp is not None and p.role != f"warp {p.warp}":
            place.append(f"warp {p.warp}")
        where = f" ({', '.join(place)})" if place else ""
        yield f"<div><b>{escape(p.role)}</b>{escape(where)}: {escape(doing(p))}</div>"
        if p.loc not in shown:
            yield code(p.loc)
        shown.add(p.loc)
    doc = RULE_DOCS.get(finding.rule)
    why = f"{doc.summary} (PTX ISA: {doc.ptx[0]})" if doc else ""
    yield table([("also", folded.also_in), ("why", why)])
    if finding.notes:
        notes = escape("\n".join(finding.notes))
        yield f"<details><summary>notes</summary>\n<pre>{notes}</pre></details>"


def of_repairs(repairs: Repairs) -> Iterator[str]:
    """What mends it, as lines before and after."""
    yield f"<h3>Repairs</h3>\n<p>{escape(str(repairs))}</p>"
    for number, repair in enumerate(repairs.found, 1):
        yield f"<div><b>{number}.</b> {escape(repair.what)} ({repair.verdict})</div>"
        for change in repair.changes:
            lines = [f"{mark} {line}" for mark, line in change.lines]
            yield f'<div class="dim"><code>{escape(str(change.place))}</code></div>'
            yield f"<pre>{escape(chr(10).join(lines))}</pre>"


def _pictures(result: Checked) -> Iterator[str]:
    told = of_result(result)
    recording = result.recording
    own = None if told is None or recording is None else timeline_of(recording, told[0])
    first = recording.timelines[0] if recording is not None and recording.timelines else None
    shown = own or first
    deadlock = told is not None and told[0].rule == "deadlock"
    if own is not None and deadlock:
        graph = waitfor.draw(own.waiters)
        if graph is not None:
            yield from figure("What waits for what", graph.element())
    if told is not None:
        yield "<h3>How it gets there</h3>"
        yield _story(tell(own, told[0], _ROWS) if own is not None else told[1])
    if result.diagram:
        yield folded_figure("Barriers: arrivals and waits", result.diagram, shown=deadlock)
    if shown is not None:
        finding = told[0] if told is not None else None
        yield from _timeline(shown, finding)


def _timeline(shown: Timeline, finding: Finding | None) -> Iterator[str]:
    barriers = barriers_of(shown, finding) if finding is not None else ()
    picture = timeline.draw(shown, barriers=sorted(barriers))
    if picture is None:
        return
    what = "the failing schedule" if shown.unit == "step" else "the timed schedule"
    part = f"the end of {what}" if timeline.window(shown)[0] else what
    yield from figure(f"Timeline: {part}, in {shown.unit}s", picture.element())
    yield f'<p class="dim">{_LEGEND}</p>'


def folded_figure(title: str, svg: str, *, shown: bool) -> str:
    """A picture behind its title, until it is asked for."""
    opened = " open" if shown else ""
    return (
        f"<details{opened}><summary>{escape(title)}</summary>\n"
        f'<div class="scroll">{svg}</div></details>'
    )


def figure(title: str, svg: str) -> Iterator[str]:
    """A picture with its title."""
    yield f'<h3>{escape(title)}</h3>\n<div class="scroll">{svg}</div>'


def _story(story: Story) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in story.columns)
    lines = [f'<tr><th class="dim">{story.unit}</th>{head}</tr>']
    if story.skipped:
        columns = len(story.columns)
        lines.append(f'<tr><td></td><td colspan="{columns}" class="dim">{story.skipped} earlier '
                     "rows left out</td></tr>")  # fmt: skip
    for row in story.rows:
        label = f' <span class="dim">{escape(row.label)}</span>' if row.label else ""
        text = f'{escape(row.text)}{label} <span class="dim">{escape(short(row.loc))}</span>'
        css = ' class="fatal"' if row.fatal else ""
        cells = "".join(
            f"<td{css}>{text}</td>" if n == row.column else "<td></td>"
            for n in range(len(story.columns))
        )
        lines.append(f'<tr><td class="dim">{row.time:g}</td>{cells}</tr>')
    return '<div class="scroll"><table class="story">\n' + "\n".join(lines) + "\n</table></div>"


def code(loc: Loc) -> str:
    """The place and lines around it, if the file can be read."""
    place = places(loc)
    lines = excerpt(loc, _AROUND)
    if not any(text.strip() for _, text in lines):
        return f'<div class="dim"><code>{escape(place)}</code></div>'
    rows = []
    for number, text in lines:
        row = f'<span class="number">{number:5} </span>{escape(text)}'
        rows.append(f'<span class="hit">{row}</span>' if number == loc.line else f"{row}\n")
    return f'<div class="dim"><code>{escape(place)}</code></div>\n<pre>{"".join(rows)}</pre>'


def table(rows: list[tuple[str, str]]) -> str:
    """Names and texts, those that are empty left out."""
    shown = [(name, text) for name, text in rows if text]
    if not shown:
        return ""
    return (
        "<dl>\n"
        + "\n".join(f"<dt>{escape(n)}</dt><dd>{escape(t)}</dd>" for n, t in shown)
        + "\n</dl>"
    )
