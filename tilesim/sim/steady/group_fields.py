"""Groups of asynchronous operations, and what warpgroups do together, in a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilesim.sim.machine.agent import Agent
from tilesim.sim.machine.groups import Groups
from tilesim.sim.machine.lane_groups import LaneGroups, Promise, Stream, _Threads
from tilesim.sim.machine.warpgroup import Round, Warpgroup
from tilesim.sim.steady.common_fields import at_component, time
from tilesim.sim.steady.snapshot import FieldWriter, NotPlain, Writer


def _committed(out: Writer, group: Groups, value: list[int]) -> None:
    _open_groups(out, group, value)


def _open_groups(out: Writer, group: Groups, committed: list[int]) -> None:
    """The committed groups, the last of them: of more than any wait lets remain it does not matter
    how many there are."""
    last = committed[-out.most_pending - 1 :]
    out.token(len(last))
    for number in last:
        out.position(group.component, number)


def _runs(out: Writer, group: LaneGroups | Promise, value: Sequence[tuple[int, int]]) -> None:
    out.token(tuple([mask for mask, _ in value]))
    for _, number in value:
        out.position(group.component, number)


def _threads(out: Writer, group: LaneGroups, value: list[_Threads]) -> None:
    out.token(len(value))
    for threads in value:
        out.token(threads.mask)
        _open_groups(out, group, threads.committed)
        for number in (threads.done, threads.tracked):
            out.position(group.component, number)


def _streams(out: Writer, group: LaneGroups, value: dict[int, Stream]) -> None:
    out.token(tuple(value))
    for stream in value.values():
        for first, before in zip(stream.firsts, stream.before, strict=True):
            out.position(group.component, first)
            out.position(stream.component, before)
        out.position(stream.component, stream.issued)
        out.position(stream.component, stream.done)


def _told(out: Writer, group: LaneGroups, value: dict[int, tuple[int, Promise]]) -> None:
    for barrier, (phase, promise) in value.items():
        out.token(barrier)
        out.position(barrier, phase)
        out.fields(promise)


GROUPS: dict[str, FieldWriter] = {
    "opened": at_component, "done": at_component, "committed": _committed, "finish": time,
}  # fmt: skip
LANE_GROUPS: dict[str, FieldWriter] = {
    "tracked": at_component, "runs": _runs, "threads": _threads, "told": _told,
    "streams": _streams,
}  # fmt: skip
PROMISE: dict[str, FieldWriter] = {
    "done": at_component, "runs": _runs, "covers": _runs, "own": _runs,
}  # fmt: skip


def _rounds(out: Writer, warpgroup: Warpgroup, value: dict[int, Round]) -> None:
    for number, round_ in value.items():
        out.number(("commits", id(warpgroup)), number)
        out.write((round_.commits, round_.waits))
        out.clock(round_.clock)


def _commits(out: Writer, warpgroup: Warpgroup, value: dict[Agent, int]) -> None:
    for warp, number in value.items():
        out.write(warp)
        out.number(("commits", id(warpgroup)), number)


def _first(out: Writer, warpgroup: Warpgroup, value: dict[int, Any] | None) -> None:
    out.token(value is None)
    for number, execution in (value or {}).items():
        out.number(("collective", id(warpgroup)), number)
        out.write((execution.warp, execution.warps, execution.operands, execution.accesses))
        out.identity(execution.ops)
        if execution.values:
            raise NotPlain("numbers")


WARPGROUP: dict[str, FieldWriter] = {"_rounds": _rounds, "_commits": _commits, "_first": _first}
