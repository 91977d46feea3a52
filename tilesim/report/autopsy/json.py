"""An autopsy as JSON (schema ``tilesim.autopsy/1``, documented in docs/autopsy.md): no times, the
same bytes for the same dump."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from tilesim.autopsy import waits
from tilesim.autopsy.core_dump import exception_text, target
from tilesim.autopsy.pipeline import Autopsy, Diagnosis, Launched
from tilesim.autopsy.text import name
from tilesim.autopsy.wait_for import Entry, Supply
from tilesim.autopsy.waits import Group, Standing, Wait, lanes_of
from tilesim.cubin.sass import Instruction
from tilesim.report.json import finding_json, repairs_json

SCHEMA = "tilesim.autopsy/1"

#: what a kind of wait is called
KINDS: Mapping[type[Wait], str] = {
    waits.MbarrierWait: "mbarrier",
    waits.NamedBarrierWait: "named-barrier",
    waits.ClusterBarrierWait: "cluster-barrier",
    waits.WarpWait: "lanes",
    waits.Poll: "poll",
    waits.Sleep: "sleep",
    waits.RegisterPoolWait: "register-pool",
    waits.TensorAllocWait: "tensor-memory",
    waits.GridDependencyWait: "earlier-grid",
    waits.AsyncGroupWait: "async-group",
    waits.EndlessLoop: "endless-loop",
    waits.Trap: "exception",
    waits.Running: "none",
}
_COMMON = frozenset(one.name for one in fields(Standing))

Json = dict[str, Any]


def render(found: Autopsy) -> str:
    """The document, ending with a newline."""
    return json.dumps(document(found), indent=2) + "\n"


def document(found: Autopsy) -> Json:
    """The document as an object."""
    driver = found.driver
    return {
        "schema": SCHEMA,
        "dump": found.path,
        "exit": found.code,
        "driver": None if driver is None else {
            "release": ".".join(map(str, driver.release)), "cuda": ".".join(map(str, driver.cuda)),
        },
        "devices": [
            {"number": d.number, "arch": target(d.arch), "sms": d.sms} for d in found.devices
        ],
        "exceptions": [
            {"device": f.device, "sm": f.sm, "number": f.exception,
             "text": exception_text(f.exception), "pc": f.pc}
            for f in found.faults
        ],
        "launches": [_launch(found, launch) for launch in found.launches],
        "unknown": [{"what": lack.what, "remedy": lack.remedy} for lack in found.lacks],
    }  # fmt: skip


def _launch(found: Autopsy, launch: Launched) -> Json:
    grid = launch.grid
    return {
        "device": grid.device,
        "state": launch.state,
        "kernel": launch.name or None,
        "name": name(launch),
        "grid": grid.grid,
        "block": grid.block,
        "cluster": grid.cluster if any(grid.cluster) else None,
        "registers": grid.registers,
        "shared_bytes": launch.shared,
        "ctas": {
            "total": grid.ctas,
            "resident": [cta.number for cta in launch.ctas],
            "ended": launch.absent.ended,
            "unknown": launch.absent.unknown,
        },
        "entries": [_entry(entry) for entry in launch.entries],
        "cycle": _groups(g for g in found.cycle if g.cta.grid is grid),
        "diagnosis": None if launch.diagnosis is None else _diagnosis(launch.diagnosis),
    }


def _diagnosis(diagnosis: Diagnosis) -> Json:
    """What a check says; ``ptx`` is null if there is none, ``match`` if nothing was checked."""
    ptx, match = diagnosis.ptx, diagnosis.match
    return {
        "missing": diagnosis.missing or None,
        "ptx": None if ptx is None else {
            "source": ptx.source, "certain": ptx.certain, "evidence": ptx.evidence,
            "differs": ptx.differs,
        },
        "match": None if match is None else {
            "kind": match.kind,
            "says": match.says,
            "differs": match.differs,
            "contradicts": match.contradicts,
            "names": [{"address": address, "name": one} for address, one in match.names],
            "assumed": [{"name": one.name, "text": one.text} for one in match.assumed],
            "finding": match.finding and finding_json(match.finding, None),
            "verdict": match.report and match.report.overall,
            "repairs": repairs_json(match.report.repairs)
            if match.report is not None and match.report.repairs is not None else None,
        },
    }  # fmt: skip


def _entry(entry: Entry) -> Json:
    """The groups are those of its first CTA."""
    wait = entry.wait
    first = entry.groups[0].cta
    return {
        "kind": KINDS[type(wait)],
        "text": str(wait),
        "ctas": entry.ctas,
        "groups": _groups(g for g in entry.groups if g.cta is first),
        "place": _place(wait.instruction),
        "certain": wait.certain,
        "evidence": wait.evidence,
        "on": {f.name: getattr(wait, f.name) for f in fields(wait) if f.name not in _COMMON},
        "passing": entry.passing,
        "state": entry.state,
        "mbarrier": None if entry.mbarrier is None else asdict(entry.mbarrier),
        "initialised": [_place(i) for i in entry.initialised],
        "supplies": [_supply(supply) for supply in entry.supplies],
    }


def _supply(supply: Supply) -> Json:
    return {
        "groups": _groups(supply.groups),
        "places": [_place(i) for i in supply.instructions],
        "certain": supply.certain,
        "waits": supply.waits,
    }


def _groups(groups: Iterable[Group]) -> list[Json]:
    return [
        {
            "cta": g.cta.number,
            "warps": g.warps,
            "lanes": lanes_of(g.lanes),
            "pc": g.pc,
            "text": str(g.wait),
            "at": _place(g.wait.instruction),
        }
        for g in groups
    ]


def _place(instruction: Instruction | None) -> Json | None:
    if instruction is None:
        return None
    return {
        "pc": instruction.pc,
        "instruction": _sass(instruction.guard, instruction.opcode, instruction.operands),
        "lines": [{"file": line.file, "line": line.line} for line in instruction.lines],
        "ptx": instruction.ptx,
    }


def _sass(guard: str, opcode: str, operands: Sequence[str]) -> str:
    """An instruction as nvdisasm writes it."""
    text = f"{opcode} {', '.join(operands)}".rstrip()
    return f"@{guard} {text}" if guard else text
