"""What an autopsy states of a dump, as data: ``python -m tests.silicon.hangs.facts DUMP [PTX]``.

With ``-`` for the PTX nothing is checked. It is a process of its own, so that it can be given a
limit of time and memory; it prints JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.silicon.hangs.answer import On, lines_of
from tests.silicon.hangs.own import STATES
from tests.silicon.hangs.task import named_by
from tilesim.autopsy import text
from tilesim.autopsy.core_dump import Cta
from tilesim.autopsy.mbarrier_word import decode
from tilesim.autopsy.pipeline import Autopsy, Launched, autopsy
from tilesim.autopsy.waits import (
    AsyncGroupWait,
    ClusterBarrierWait,
    EndlessLoop,
    GridDependencyWait,
    MbarrierWait,
    NamedBarrierWait,
    Poll,
    RegisterPoolWait,
    Sleep,
    Trap,
    Wait,
    WarpWait,
)

_ON: tuple[tuple[type, On], ...] = (
    (MbarrierWait, "mbarrier"), (NamedBarrierWait, "named barrier"),
    (ClusterBarrierWait, "cluster barrier"), (WarpWait, "lanes"), (Poll, "word"),
    (Sleep, "sleep"), (EndlessLoop, "word"), (RegisterPoolWait, "registers"),
    (GridDependencyWait, "earlier kernel"),
    (AsyncGroupWait, "operations"), (Trap, "exception"),
)  # fmt: skip


def facts(found: Autopsy) -> dict[str, Any]:
    """What it states, without the texts."""
    return {
        "launches": [
            {"kernel": one.name, "state": one.state, "ctas": len(one.ctas)}
            for one in found.launches
        ],
        "stands": [stand for one in found.launches for stand in _stands(one)],
        "states": [word for one in found.launches for word in _states(one)],
        **_checked(found),
    }


def _checked(found: Autopsy) -> dict[str, Any]:
    """What a check of the PTX says: how its hang is that of the dump, and the lines to change."""
    matches = [
        one.diagnosis.match
        for one in found.launches
        if one.diagnosis is not None and one.diagnosis.match is not None
    ]
    findings = [match.finding for match in matches if match.finding is not None]
    return {
        "verdict": ", ".join(match.kind for match in matches),
        "rules": sorted({finding.rule for finding in findings}),
        "culprits": sorted(line for finding in findings for line in named_by(finding)),
        "says": [text for match in matches for text in (*match.says, *match.differs)],
    }


def _stands(launch: Launched) -> Iterator[dict[str, Any]]:
    for entry in launch.entries:
        for group in entry.groups:
            wait = group.wait
            where = wait.instruction
            yield {
                "kernel": launch.name,
                "cta": group.cta.number,
                "warps": group.warps,
                "lanes": group.lanes,
                "on": on(wait),
                "certain": wait.certain,
                "passing": entry.passing,
                "lines": sorted(lines_of(where.lines)) if where is not None else [],
                **_of(wait, group.cta, launch.device.arch),
            }


def _states(launch: Launched) -> Iterator[tuple[int, ...]]:
    """The barriers of ``states.cu``: parity, pending and expected arrivals, bytes of each. The one
    that is waited for is the last."""
    waits = [entry.wait for entry in launch.entries if isinstance(entry.wait, MbarrierWait)]
    if launch.name != "states" or not waits or waits[0].address is None:
        return
    shared, last = launch.ctas[0].shared or b"", waits[0].address
    for at in range(last - 8 * (len(STATES) - 1), last + 8, 8):
        state = decode(int.from_bytes(shared[at : at + 8], "little"), launch.device.arch)
        yield () if state is None else (state.parity, state.pending, state.expected, state.tx)


def on(wait: Wait) -> On:
    """What it waits for, as answers spell it."""
    return next((name for kind, name in _ON if isinstance(wait, kind)), "runs")


def _of(wait: Wait, cta: Cta, arch: tuple[int, int]) -> dict[str, Any]:
    """What is stated of the barrier."""
    if isinstance(wait, NamedBarrierWait):
        return {"id": wait.id, "threads": wait.threads}
    if not isinstance(wait, MbarrierWait) or wait.address is None:
        return {}
    stated: dict[str, Any] = {"address": wait.address, "parity": wait.parity}
    shared, at = cta.shared, wait.address
    if wait.rank is None and shared is not None and at + 8 <= len(shared):
        state = decode(int.from_bytes(shared[at : at + 8], "little"), arch)
        if state is not None:
            stated["phase"] = state.parity
            stated["barrier"] = [state.pending, state.expected, state.tx]
    return stated


def main(arguments: list[str]) -> None:
    """Prints what is stated of a dump, and how long that took."""
    dump, *ptx = arguments
    start = time.perf_counter()
    found = autopsy(dump, *(p for p in ptx if p != "-"), check=ptx != ["-"])
    shown = text.render(found)
    seconds = time.perf_counter() - start
    print(json.dumps({**facts(found), "text": shown, "seconds": round(seconds, 3)}))


if __name__ == "__main__":
    main(sys.argv[1:])
