"""Stories: how a failing schedule gets where it fails, one column per role.

A story shows only what touches the barriers that the finding is about, and the instructions the
finding names. Steps of several warps of a role that follow one another are one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from textwrap import wrap

from tilesim.findings.finding import Finding
from tilesim.ir.loc import Loc
from tilesim.records import dataclass, replace
from tilesim.report.result import Checked
from tilesim.sim.observers.timeline import Point, Recording, Slice, Timeline, Track
from tilesim.wording import ranges

#: columns and rows of a story
COLUMNS, ROWS = 3, 24
_OTHERS = "others"


@dataclass(frozen=True)
class Row:
    """One step: when, in which column, by which warps (or engine), what, where.

    ``fatal``: an instruction the finding names, at its last execution, or a wait that never ends.
    """

    time: float
    column: int
    label: str
    text: str
    loc: Loc
    fatal: bool = False


@dataclass(frozen=True)
class Story:
    """The last rows of the schedule; ``skipped`` earlier ones are left out."""

    unit: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    skipped: int = 0


@dataclass(frozen=True)
class _Moment:
    """A point or slice on its way into a row."""

    time: float
    track: Track
    engine: str
    key: tuple[object, ...]
    text: str
    loc: Loc
    fatal: bool = False


def tell(timeline: Timeline, finding: Finding, rows: int = ROWS) -> Story:
    """The story of ``finding``, which the recorded run shows."""
    moments = _moments(timeline, finding)
    columns = _columns(timeline, finding, moments)
    warps = Counter((t.cta, t.role) for t in timeline.tracks if t.warp is not None)
    several = len(timeline.ctas) > 1
    merged = [_row(group, columns, warps, several=several) for group in _together(moments)]
    skipped = max(0, len(merged) - rows)
    return Story(timeline.unit, columns, tuple(merged[skipped:]), skipped)


def of_result(result: Checked, rows: int = ROWS) -> tuple[Finding, Story] | None:
    """The first finding that the recorded run shows, and its story."""
    recording = result.recording
    if recording is None:
        return None
    places = {_places(f) for f in recording.findings}
    for finding in result.report.findings:
        timeline = timeline_of(recording, finding)
        if timeline is not None and _places(finding) in places:
            return finding, tell(timeline, finding, rows)
    return None


def _places(finding: Finding) -> object:
    return finding.rule, tuple(dict.fromkeys(p.loc for p in finding.participants))


def timeline_of(recording: Recording, finding: Finding) -> Timeline | None:
    """The timeline of the cluster in which the finding is."""
    return recording.of_cta(finding.participants[0].cta) if finding.participants else None


def barriers_of(timeline: Timeline, finding: Finding) -> frozenset[str]:
    """Labels of the barriers that the finding speaks of; of all mbarriers, if it names none."""
    known = {p.on for p in timeline.points if p.on}
    deeds = (p.deed for p in finding.participants)
    told = (*finding.facts.named, *(d.on for d in deeds if d is not None and d.on is not None))
    for named in (told, finding.noted.named):
        labels = known & {n.label for n in named}
        if labels:
            return frozenset(labels)
    slots = (p.on for p in timeline.points if p.named is not None and p.named.slot is not None)
    return frozenset(slots) or frozenset(known)


def _moments(timeline: Timeline, finding: Finding) -> list[_Moment]:
    """What belongs in the story, in order: to the end of a deadlock, else to what was found."""
    barriers = barriers_of(timeline, finding)
    stuck = {s.track: s.start for s in timeline.slices if s.stuck and s.kind == "wait"}
    found = [_of_point(p, stuck) for p in timeline.points if p.on in barriers]
    if timeline.waiters:
        return sorted([*found, *_stuck(timeline, found)], key=lambda m: m.time)
    told = {(m.track, m.time, m.loc) for m in found}
    last: dict[tuple[Loc, str], int] = {}
    sides = {(p.loc, p.warp) for p in finding.participants}
    for s in timeline.slices:
        named = s.kind == "run" and (s.loc, s.track.warp) in sides
        if named and (s.track, s.start, s.loc) not in told:
            last[s.loc, str(s.track)] = len(found)
            found.append(_of_slice(s))
    for index in last.values():
        found[index] = replace(found[index], fatal=True)
    found.sort(key=lambda m: m.time)
    ends = [index for index, m in enumerate(found) if m.fatal]
    return found[: ends[-1] + 1] if ends else found


def _stuck(timeline: Timeline, found: list[_Moment]) -> Iterator[_Moment]:
    """Waits that never end and that no point tells of (those of named and cluster barriers)."""
    told = {m.track for m in found if m.fatal}
    for s in timeline.slices:
        if s.stuck and s.kind == "wait" and s.track not in told:
            key = ("stuck", s.name, s.loc)
            yield _Moment(s.start, s.track, "", key, f"{s.name}, for ever", s.loc, True)


def _of_point(p: Point, stuck: dict[Track, float]) -> _Moment:
    text = p.text
    if p.kind == "pass" and p.phase < 0 and p.named is not None:
        text = f"passes {p.named.seen_from(p.track.cta)} at once (no phase before)"
    fatal = p.kind == "block" and p.time >= stuck.get(p.track, p.time + 1)
    key = (p.kind, p.on, p.phase, p.loc, fatal, p.alike or text)
    return _Moment(p.time, p.track, p.engine, key, f"{text}, for ever" if fatal else text, p.loc,
                   fatal)  # fmt: skip


def _of_slice(s: Slice) -> _Moment:
    return _Moment(s.start, s.track, "", ("run", s.name, s.loc), f"executes {s.name}", s.loc)


def _column(track: Track, engine: str, ctas: int) -> str:
    name = engine or track.role
    return f"CTA {track.cta} {name}" if ctas > 1 else name


def _columns(timeline: Timeline, finding: Finding, moments: list[_Moment]) -> tuple[str, ...]:
    """The finding's own roles first, then the busiest; the rest share a column."""
    several = len(timeline.ctas)
    busy = Counter(_column(m.track, m.engine, several) for m in moments)
    prefix = "CTA {} " if several > 1 else ""
    own = dict.fromkeys(prefix.format(p.cta) + p.role for p in finding.participants)
    names = [n for n in own if n in busy]
    names += [n for n, _ in busy.most_common() if n not in names]
    if len(names) > COLUMNS:
        names = [*names[: COLUMNS - 1], _OTHERS]
    return tuple(names)


def _place(m: _Moment, columns: tuple[str, ...]) -> int:
    for name in (_column(m.track, m.engine, 1), _column(m.track, m.engine, 2)):
        if name in columns:
            return columns.index(name)
    return columns.index(_OTHERS)


def _together(moments: Iterable[_Moment]) -> Iterator[list[_Moment]]:
    """Moments that make one row: the same thing done by several warps of a role in a row."""
    group: list[_Moment] = []
    for m in moments:
        if group and not _same_row(group, m):
            yield group
            group = []
        group.append(m)
    if group:
        yield group


def _same_row(group: list[_Moment], m: _Moment) -> bool:
    last = group[-1]
    same_agent = _column(last.track, last.engine, 2) == _column(m.track, m.engine, 2)
    return last.key == m.key and same_agent and all(m.track != g.track for g in group)


def _row(
    group: list[_Moment],
    columns: tuple[str, ...],
    warps: Counter[tuple[int, str]],
    *,
    several: bool,
) -> Row:
    last = group[-1]
    column = _place(last, columns)
    alone = warps[last.track.cta, last.track.role] == 1
    label = _label(group, alone=alone)
    if columns[column] == _OTHERS:
        agent = last.engine or last.track.role
        label = agent if label == agent else f"{agent} {label}".rstrip()
        label = f"CTA {last.track.cta} {label}" if several else label
    return Row(last.time, column, label, last.text, last.loc, last.fatal)


def _label(group: list[_Moment], *, alone: bool) -> str:
    """The warps of a row; nothing if the role has just one."""
    if group[0].engine:
        return f"for {group[0].track}"
    numbers = tuple(sorted(m.track.warp for m in group if m.track.warp is not None))
    return "" if alone else f"warp{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"


# ---------------------------------------------------------------------- as text

_LEAST = 24


def lines(story: Story, width: int) -> Iterator[str]:
    """The story as a table, or as a list where ``width`` has no room for the columns."""
    number = max((len(_number(row.time)) for row in story.rows), default=1)
    room = (width - number) // max(1, len(story.columns)) - 3
    if story.skipped:
        yield f"... {story.skipped} earlier {'step' if story.skipped == 1 else 'steps'}"
    if room < _LEAST:
        yield from _as_list(story, width, number)
        return
    yield (" " * number + "".join(f" | {name[:room]:{room}}" for name in story.columns)).rstrip()
    yield "-" * number + ("-+-" + "-" * room) * len(story.columns)
    places = len({row.loc.file for row in story.rows}) > 1
    for row in story.rows:
        cell = wrap(_cell(row, places), room, subsequent_indent="  ", break_on_hyphens=False)
        for index, part in enumerate(cell):
            first = "" if index else _number(row.time)
            cells = [part if i == row.column else "" for i in range(len(story.columns))]
            yield (f"{first:>{number}}" + "".join(f" | {c:{room}}" for c in cells)).rstrip()


def _as_list(story: Story, width: int, number: int) -> Iterator[str]:
    for row in story.rows:
        yield from wrap(
            f"{_number(row.time):>{number}} {story.columns[row.column]}: {_cell(row, True)}",
            max(width, _LEAST), subsequent_indent=" " * (number + 3), break_on_hyphens=False,
        )  # fmt: skip


def _cell(row: Row, places: bool) -> str:
    """``> waits on full[0] parity 0, for ever, warp 4 (:20)``; ``places``: name the file."""
    mark = "> " if row.fatal else ""
    label = f", {row.label}" if row.label else ""
    return f"{mark}{row.text}{label} ({short(row.loc) if places else f':{row.loc.line}'})"


def short(loc: Loc) -> str:
    """The last part of the file's path and the line."""
    return loc.short


def _number(time: float) -> str:
    return str(int(time)) if time == int(time) else f"{time:.2f}"
