"""JSON reports (schema 1): the same bytes for the same kernel, if no times are asked for."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tilesim.checker.assumptions import Leaning
from tilesim.checker.report import Claim, Stats
from tilesim.errors import Diagnostic
from tilesim.findings.finding import Finding, Iteration, Participant
from tilesim.findings.sides import names_of
from tilesim.ir.loc import Loc
from tilesim.repair import Repairs
from tilesim.report import document as of
from tilesim.report.document import SCHEMA
from tilesim.report.result import Checked, Failure, Rejected, Result

if TYPE_CHECKING:
    from tilesim.proof.rules import Answer
    from tilesim.report.machine_code import MachineCode
    from tilesim.translation.validation import Difference, Relations, Translated, Undecided


def render(results: Iterable[Result], interrupted: of.Interrupted | None = None) -> str:
    """The document ``tilesim check --format json`` prints, ending with a newline.

    ``interrupted`` says, after an interrupt, which kernel was being checked and how many were left.
    """
    document: of.Document = {"schema": SCHEMA, "results": [result_json(r) for r in results]}
    if interrupted is not None:
        document["interrupted"] = interrupted
    return json.dumps(document, indent=2) + "\n"


def line(result: Result, number: int) -> str:
    """A line of ``--format jsonl``: the entry of a result, with its place among all of them."""
    entry: of.Line = {"number": number, **result_json(result)}
    return json.dumps(entry) + "\n"


def result_json(result: Result) -> of.Result:
    """One entry of ``results``; every entry has the same keys."""
    entry: of.Result = {
        "kernel": result.kernel,
        "target": None,
        "verdict": "error",
        "covers": "",
        "conditional": False,
        "leanings": [],
        "reasons": [],
        "findings": [],
        "diagnostics": [],
        "error": None,
        "stats": None,
    }
    match result:
        case Checked(report=report):
            entry |= {
                "target": result.target,
                "verdict": report.overall,
                "covers": report.covers,
                "conditional": bool(report.conditions),
                "leanings": [leaning_json(one, result.denied) for one in report.leanings],
                "reasons": list(report.reasons),
                "findings": [finding_json(f, report.witness) for f in report.findings],
                "stats": _stats(report.stats),
            }
            if report.for_all is not None:
                entry["for_all"] = for_all_json(report.for_all)
            if report.repairs is not None:
                entry["repairs"] = repairs_json(report.repairs)
            if report.rechecked is not None:
                entry["rechecked"] = _rechecked(report.rechecked, report.recheck_trusts)
            if result.machine_code is not None:
                entry["machine_code"] = machine_code_json(result.machine_code)
        case Rejected(diagnostics=diagnostics):
            entry |= {
                "target": result.target,
                "verdict": "rejected",
                "diagnostics": [_diagnostic(d) for d in diagnostics],
            }
            if result.repairs is not None:
                entry["repairs"] = repairs_json(result.repairs)
        case Failure(message=message):
            entry["error"] = message
    if result.seconds is not None:
        entry["seconds"] = round(result.seconds, 3)
    return entry


def _stats(stats: Stats) -> of.Stats:
    return {
        "instructions": stats.instructions, "schedules": stats.schedules, "ctas": stats.ctas,
    }  # fmt: skip


def _rechecked(answer: Answer, trusts: str) -> of.Rechecked:
    return {
        "verdict": answer.verdict, "rule": answer.rule, "what": answer.what, "trusts": trusts,
    }  # fmt: skip


def machine_code_json(code: MachineCode) -> of.MachineCode:
    """What was found in the machine code of a kernel."""
    found = code.validation
    entry: of.MachineCode = {
        "verdict": code.kind, "without": code.without, "form": code.form, "source": code.source,
        "missing": code.missing,
        "ptxas": None, "arch": None, "outcomes": {}, "relations": {}, "instructions": [],
        "differences": [], "undecided": [],
    }  # fmt: skip
    if found is None:
        return entry
    return {
        **entry,
        "ptxas": found.ptxas,
        "arch": found.arch,
        "outcomes": dict(found.outcomes.items()),
        "relations": {kind: _relations(one) for kind, one in found.relations.items()},
        "instructions": [_instruction(one) for one in found.instructions],
        "differences": [_difference(one) for one in found.differences],
        "undecided": [_undecided(one) for one in found.undecided],
    }


def _relations(one: Relations) -> of.Relations:
    return {
        "shown": one.shown, "explained": one.explained, "lost": one.lost,
        "undecided": one.undecided,
    }  # fmt: skip


def _instruction(one: Translated) -> of.Instruction:
    return {
        "kind": one.kind, "line": one.line, "text": one.text, "outcome": one.outcome,
        "pcs": list(one.pcs), "why": one.why,
    }  # fmt: skip


def _difference(one: Difference) -> of.Difference:
    return {
        "kind": one.kind, "rule": one.rule, "effect": one.effect, "line": one.line,
        "text": one.text, "pc": one.pc, "sass": one.sass, "sentence": one.sentence,
    }  # fmt: skip


def _undecided(one: Undecided) -> of.Undecided:
    return {
        "kind": one.kind, "line": one.line, "text": one.text, "why": one.why, "always": one.always,
    }  # fmt: skip


def leaning_json(leaning: Leaning, denied: Collection[Leaning] = ()) -> of.Leaning:
    """Something that a proof leans on, and whether it was ``denied``."""
    return {
        "name": leaning.name,
        "kind": leaning.kind,
        "text": leaning.text,
        "locations": [loc_json(loc) for loc in leaning.locs],
        "denied": leaning in denied,
    }


def finding_json(finding: Finding, witness: dict[str, Any] | None) -> of.Finding:
    """A finding; ``witness`` is the schedule that showed it."""
    return {
        "rule": finding.rule,
        "message": finding.message,
        "cause": finding.cause,
        "culprits": [_participant(p) for p in finding.culprits],
        "locations": [loc_json(loc) for loc in _places(finding)],
        "participants": [_participant(p) for p in finding.participants],
        "notes": list(finding.notes),
        "fix": finding.fix,
        "witness": witness,
    }


def _places(finding: Finding) -> Iterable[Loc]:
    """The lines of a finding; different lines of a helper that is called in one are several."""
    sides = (*finding.culprits, *finding.participants)
    found: dict[tuple[str, ...], Loc] = {}
    for p in sides:
        found.setdefault(p.loc.written, p.loc)
    return found.values()


def for_all_json(claim: Claim) -> of.ForAll:
    """What has been found out about all values of a parameter; ``runs``: how many were run."""
    why = claim.obstacle
    return {
        "wanted": claim.wanted,
        "proved": claim.proved,
        "obstacle": None if why is None else {"what": why.what, **loc_json(why.loc)},
        "limit": None if claim.limit is None else {
            "last": claim.limit[0], "what": claim.limit[1].what, **loc_json(claim.limit[1].loc),
        },
        "refused": list(claim.refused),
        "at": claim.at,
        "upto": claim.upto,
        "said": [{"verdict": verdict, "values": values} for verdict, values in claim.parts],
        "runs": claim.runs,
    }  # fmt: skip


def repairs_json(repairs: Repairs) -> of.Repairs:
    """What ``--suggest`` has found, the best first; ``ended``: more time would find no more."""
    return {
        "tried": repairs.tried,
        "seconds": repairs.seconds,
        "ended": repairs.ended,
        "found": [
            {
                "what": repair.what,
                "verdict": repair.verdict,
                "changes": [
                    {
                        **loc_json(c.loc),
                        "before": list(c.before),
                        "after": list(c.after),
                        "patch": None if c.patch is None else asdict(c.patch),
                    }
                    for c in repair.changes
                ],
            }
            for repair in repairs.found
        ],
    }


def _participant(p: Participant) -> of.Participant:
    iterations = zip(p.iterations, names_of(p.iterations), strict=True)
    return {
        "role": p.role, "cta": p.cta, "warp": p.warp, "action": p.action,
        "instruction": p.instruction, **loc_json(p.loc),
        "iterations": [_iteration(*one) for one in iterations],
    }  # fmt: skip


def _iteration(iteration: Iteration, name: str) -> of.Iteration:
    """The turn of a loop: its number, counted from 1, and what the loop's variable was."""
    variable = name if iteration.variable else None
    return {
        **loc_json(iteration.loc),
        "number": iteration.number,
        "variable": variable,
        "value": iteration.value,
    }


def _diagnostic(d: Diagnostic) -> of.Diagnostic:
    return {"rule": d.rule, "message": d.message, "locations": [loc_json(d.loc)], "fix": d.fix}


def loc_json(loc: Loc) -> of.Place:
    """``behind`` is there if PTX was read: its line, or that of an inlined function before it.
    ``calls`` is there if the line is of a function that the kernel's calls: where, the nearest
    first."""
    place: of.Place = {"file": loc.file, "line": loc.line}
    if loc.calls:
        place["calls"] = [loc_json(call) for call in loc.calls]
    if loc.behind is not None:
        place["behind"] = loc_json(loc.behind)
    return place
