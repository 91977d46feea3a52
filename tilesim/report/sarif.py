"""SARIF 2.1.0: results for code scanning; a deadlock has one thread flow per role.

Paths are relative to the working directory, times are left out, and fingerprints depend on the
kernel, the rule and the text of the lines, so that they survive edits elsewhere in the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import tilesim
from tilesim.checker.assumptions import ASSUMPTIONS, SWITCHES, Leaning
from tilesim.errors import Diagnostic
from tilesim.findings.finding import Finding, Participant
from tilesim.findings.rules import RULE_DOCS, RuleDoc
from tilesim.findings.sides import doing
from tilesim.ir.loc import Loc
from tilesim.layout import line_of
from tilesim.repair import Repairs
from tilesim.report.reading import LEANINGS, more, page
from tilesim.report.result import Checked, Failure, Rejected, Result
from tilesim.report.source import pointed
from tilesim.report.text import Folded, fold
from tilesim.transforms.rewrite import Patch

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "SRCROOT"
#: GitHub accepts no more results in a run
MAX_RESULTS = 25_000
#: the rule of what a GPU has stopped
EXCEPTION = "exception"
#: lines of a wait-for chain that go into a message
CHAIN = 12

Json = dict[str, Any]
_LEANINGS = {**SWITCHES, **ASSUMPTIONS}


def render(results: Iterable[Result]) -> str:
    """The log as JSON, ending with a newline."""
    done = tuple(results)
    found = [entry for result in done for entry in _results(result)][:MAX_RESULTS]
    used = sorted({entry["ruleId"] for entry in found})
    for entry in found:
        entry["ruleIndex"] = used.index(entry["ruleId"])
    driver = {
        "name": "tilesim",
        "version": tilesim.__version__,
        "semanticVersion": tilesim.__version__,
        "rules": [_rule(name) for name in used],
    }
    failures = [r for r in done if isinstance(r, Failure)]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "the working directory"}}},
        "invocations": [_invocation(failures, _notes(done))],
        "results": found,
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2) + "\n"


def _invocation(failures: list[Failure], notes: list[Json]) -> Json:
    entry: Json = {"executionSuccessful": not failures}
    if failures or notes:
        entry["toolExecutionNotifications"] = [
            {"level": "error", "message": {"text": f"{f.kernel}: {f.message}"}} for f in failures
        ] + notes
    return entry


def _rule(name: str) -> Json:
    doc = RULE_DOCS.get(name)
    if name in _LEANINGS:
        return {
            "id": name,
            "shortDescription": {"text": _LEANINGS[name]},
            "help": {"text": f"What it says: tilesim explain {name}"},
            **_help_uri(*LEANINGS),
            "defaultConfiguration": {"level": "note"},
        }
    if name == EXCEPTION:
        text = "The GPU has stopped the kernel: a warp has met an exception or a trap."
        return {"id": name, "shortDescription": {"text": text}}
    if doc is None:
        text = f"The program breaks the rule {name}, which is checked before it runs."
        return {"id": name, "shortDescription": {"text": text}}
    return {
        "id": name,
        "shortDescription": {"text": doc.summary},
        "fullDescription": {"text": doc.explanation},
        "help": {"text": _help(doc), "markdown": _help(doc)},
        **_help_uri(f"findings/{name}"),
        "properties": {"tags": ["concurrency", "gpu"]},
        "defaultConfiguration": {"level": "error"},
    }


def _help_uri(name: str, anchor: str = "") -> Json:
    where = page(name, anchor)
    return {"helpUri": where} if where else {}


def _help(doc: RuleDoc) -> str:
    sections = "; ".join(doc.ptx)
    rules = f"; the rules behind it: tilesim explain {' '.join(doc.rules)}" if doc.rules else ""
    return (
        f"{doc.explanation}\n\nFix: {doc.fix}\n\nPTX ISA: {sections}\n\n"
        f"An example and its fix: tilesim explain {doc.name}{rules}"
    )


def _notes(results: Iterable[Result]) -> list[Json]:
    """What is said of kernels of which all values of parameters were asked for."""
    return [
        {
            "level": "note" if r.report.is_whole else "warning",
            "message": {"text": f"{r.kernel}: {r.report.said}"},
        }
        for r in results
        if isinstance(r, Checked) and r.report.for_all is not None
    ]


def _results(result: Result) -> Iterator[Json]:
    match result:
        case Checked(report=report):
            fixes = [] if report.repairs is None else list(_fixes(report.repairs))
            for folded in fold(report.findings):
                entry = _finding(result.kernel, folded)
                if fixes:  # they mend all of it, and are said once
                    entry["fixes"], fixes = fixes, []
                yield entry
            for leaning in report.leanings:
                if leaning.conditional or leaning in result.denied:
                    yield _leaning(result, leaning)
        case Rejected(diagnostics=diagnostics):
            fixes = [] if result.repairs is None else list(_fixes(result.repairs))
            for diagnostic in diagnostics:
                entry = _diagnostic(result.kernel, diagnostic)
                if fixes:
                    entry["fixes"], fixes = fixes, []
                yield entry
        case _:
            pass


def _leaning(result: Checked, leaning: Leaning) -> Json:
    """A note: the proof leans on this; an error if that is denied."""
    first, *others = leaning.locs
    leans = f"{result.report.verdict} only by leaning on {leaning.name}: {leaning.text}"
    return {
        "ruleId": leaning.name,
        "level": "error" if leaning in result.denied else "note",
        "message": {"text": f"{result.kernel}: {leans}."},
        "locations": [_location(first)],
        "relatedLocations": [_location(loc, "also", n) for n, loc in enumerate(others, 1)],
        "partialFingerprints": _fingerprint(result.kernel, leaning.name, leaning.locs),
    }


def _finding(kernel: str, folded: Folded) -> Json:
    finding = folded.finding
    text = [f"{kernel}: {finding.message}."]
    if finding.cause:
        text.append(f"Cause: {finding.cause}.")
    text += [f"{note.strip()}." for note in finding.notes[:CHAIN]]
    if folded.also:
        text.append(f"({folded.also_in})")
    text += [f"From this follows {line}." for line in folded.consequences]
    if finding.fix:
        text.append(f"Fix: {finding.fix}.")
    text += more(finding.rule, finding.message)
    sides = {p.loc: p for p in reversed((*finding.culprits, *finding.participants))}
    first, *others = [sides[loc] for loc in finding.locations] or (None,)
    entry: Json = {
        "ruleId": finding.rule,
        "level": "warning" if finding.rule == "unsupported" else "error",
        "message": {"text": " ".join(text)},
        "locations": [] if first is None else [_location(first.loc, doing(first))],
        "relatedLocations": [_location(p.loc, f"{p.role} {doing(p)}", n)
                             for n, p in enumerate((p for p in others if p), 1)],
        "partialFingerprints": _fingerprint(kernel, finding.rule, finding.locations),
    }  # fmt: skip
    if finding.rule == "deadlock" and finding.participants:
        entry["codeFlows"] = [_code_flow(finding)]
    return entry


def _fixes(repairs: Repairs) -> Iterator[Json]:
    """The repairs whose source lines can be changed, as replacements of whole lines."""
    for repair in repairs.found:
        files: dict[str, list[Patch]] = {}
        for patch in repair.patches:
            files.setdefault(patch.file, []).append(patch)
        if not files:
            continue
        yield {
            "description": {"text": f"{repair.what} ({repair.verdict})"},
            "artifactChanges": [
                {
                    "artifactLocation": artifact(Loc(file, 1)),
                    "replacements": [_replacement(patch) for patch in own],
                }
                for file, own in files.items()
            ],
        }


def _replacement(patch: Patch) -> Json:
    return {
        "deletedRegion": {
            "startLine": patch.first, "startColumn": 1, "endLine": patch.last + 1, "endColumn": 1,
        },
        "insertedContent": {"text": "".join(f"{line}\n" for line in patch.new)},
    }  # fmt: skip


def _code_flow(finding: Finding) -> Json:
    """One thread flow per role: where each of its waits is."""
    roles: dict[tuple[str, int], list[Participant]] = {}
    for p in finding.participants:
        roles.setdefault((p.role, p.cta), []).append(p)
    several = len({cta for _, cta in roles}) > 1
    flows = []
    for (role, cta), participants in roles.items():
        name = f"{role}, CTA {cta}" if several else role
        steps = [{"location": _location(p.loc, f"{p.role} {doing(p)}")} for p in participants]
        flows.append({"id": name, "message": {"text": name}, "locations": steps})
    return {"message": {"text": finding.message}, "threadFlows": flows}


def _diagnostic(kernel: str, diagnostic: Diagnostic) -> Json:
    text = [f"{kernel}: {diagnostic.message}."]
    text += [f"Fix: {diagnostic.fix}."] if diagnostic.fix else []
    text += more(diagnostic.rule, diagnostic.message)
    return {
        "ruleId": diagnostic.rule,
        "level": "error",
        "message": {"text": " ".join(text)},
        "locations": [_location(diagnostic.loc)],
        "partialFingerprints": _fingerprint(kernel, diagnostic.rule, (diagnostic.loc,)),
    }


def _location(loc: Loc, text: str = "", number: int | None = None) -> Json:
    told, loc = loc, pointed(loc)
    text += f" ({told})" if text and told is not loc else ""
    region: Json = {"startLine": max(1, loc.line)}
    source = line_of(loc)
    if source:
        region["snippet"] = {"text": source}
    entry: Json = {"physicalLocation": {"artifactLocation": artifact(loc), "region": region}}
    if loc.function:
        entry["logicalLocations"] = [{"name": loc.function, "kind": "function"}]
    if text:
        entry["message"] = {"text": text}
    if number is not None:
        entry["id"] = number
    return entry


def artifact(loc: Loc) -> Json:
    """The file: relative to the working directory where it lies below it."""
    path = Path(os.path.abspath(loc.file))
    if path.is_relative_to(Path.cwd()):
        return {"uri": quote(os.fsencode(path.relative_to(Path.cwd()))), "uriBaseId": ROOT}
    return {"uri": path.as_uri()}


def _fingerprint(kernel: str, rule: str, locations: Iterable[Loc]) -> Json:
    """Independent of line numbers: the kernel's name, the rule, and the lines' text."""
    parts = [kernel.partition("[")[0], rule]
    parts += [f"{artifact(loc)['uri']}:{line_of(loc) or loc.line}" for loc in locations]
    import hashlib  # loads OpenSSL

    digest = hashlib.sha256("\0".join(parts).encode(errors="backslashreplace")).hexdigest()
    return {"tilesim/v1": digest[:32]}
