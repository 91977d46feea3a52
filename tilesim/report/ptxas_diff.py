"""What ``tilesim ptxas-diff`` says: kernels whose synchronisation two ptxas compile differently."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from tilesim.cubin.ptxas import Ptxas
from tilesim.ptx.demangle import short
from tilesim.records import dataclass
from tilesim.report.document import SCHEMA
from tilesim.report.result import FINDINGS, INCONCLUSIVE, OK, USAGE, worst
from tilesim.translation.two_compilers import Change
from tilesim.wording import count

#: ``same code``: byte for byte; ``same synchronisation``: other machine code, in which nothing that
#: synchronises differs; ``not compared``: a ptxas refuses the PTX, or code cannot be compared with
#: it; ``error``: the file cannot be read
Outcome = Literal["same code", "same synchronisation", "differs", "not compared", "error"]
_CODES = {"differs": FINDINGS, "not compared": INCONCLUSIVE, "error": USAGE}
_WORDS = {
    "same code": "with the same machine code",
    "same synchronisation": "with the same synchronisation in other machine code",
    "differs": "in which it differs",
    "not compared": "not compared",
    "error": "not read",
}
#: machine instructions of a change that are shown as text
_MOST = 4


@dataclass(frozen=True)
class Compared:
    """What became of a kernel, or of a file if it has none that is known. ``why``: why it was not
    compared; ``note``: as what it was compiled, if not as it says; else empty."""

    file: str
    kernel: str
    outcome: Outcome
    changes: tuple[Change, ...] = ()
    why: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """What a target is called."""
        return f"{self.file}::{short(self.kernel)}" if self.kernel else self.file


def code_of(found: Sequence[Compared]) -> int:
    """The exit code."""
    return worst(_CODES.get(one.outcome, OK) for one in found)


def text_of(one: Compared, old: Ptxas, new: Ptxas) -> str:
    """Lines about a kernel, if there is something to say; else nothing."""
    if one.why:
        return f"{one.name}: {_WORDS[one.outcome]}: {one.why}\n"
    return "".join(f"{line}\n" for line in _lines(one, old, new)) if one.changes else ""


def _lines(one: Compared, old: Ptxas, new: Ptxas) -> Iterator[str]:
    note = f" ({one.note})" if one.note else ""
    yield f"{one.name}: {count(len(one.changes), 'difference')}{note}"
    names = [f"ptxas {old.version}", f"ptxas {new.version}"]
    if old.version == new.version:
        names = [old.path, new.path]
    width = max(map(len, names))
    for change in one.changes:
        where = f"  line {change.line}" if change.line else " "
        yield f"{where} {change.aspect} of {change.kind}: {change.text}".rstrip(": ")
        for name, texts in zip(names, (change.old, change.new), strict=True):
            more = f" and {len(texts) - _MOST} more" if len(texts) > _MOST else ""
            yield f"    {name:{width}}  {'; '.join(texts[:_MOST]) or 'none'}{more}"


def closing(found: Sequence[Compared], old: Ptxas, new: Ptxas) -> str:
    """How many kernels there are, by what became of them."""
    many = Counter(one.outcome for one in found)
    each = [f"{many[one]:,} {_WORDS[one]}" for one in get_args(Outcome) if many[one]]
    return f"{old} and {new}: {count(len(found), 'kernel')}, {', '.join(each)}\n"


def document(found: Sequence[Compared], old: Ptxas, new: Ptxas) -> str:
    """All of it as JSON; of kernels that are the same no changes."""
    data = {
        "schema": SCHEMA,
        "old": {"path": old.path, "version": old.version},
        "new": {"path": new.path, "version": new.version},
        "kernels": [
            {
                "kernel": one.kernel or None, "file": one.file, "outcome": one.outcome,
                "why": one.why or None, "note": one.note or None,
                "changes": [_change(change) for change in one.changes],
            }
            for one in found
        ],
    }  # fmt: skip
    return json.dumps(data, indent=2) + "\n"


def _change(one: Change) -> dict[str, object]:
    return {
        "aspect": one.aspect, "kind": one.kind, "line": one.line or None, "text": one.text,
        "old": list(one.old), "new": list(one.new),
    }  # fmt: skip
