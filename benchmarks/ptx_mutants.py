"""PTX with one synchronising instruction changed: ``python -m benchmarks.ptx_mutants [KERNEL...]``

A right kernel of the gallery is compiled to PTX, and each instruction that synchronises is removed,
repeated, given another count, parity or barrier, or made to change places with the next one. Where
a fault of `tilesim.fuzz` does the same to the program, at the same line, the verdicts are compared.
A table of the faults on standard output, and the mutants on which the two disagree.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.fuzz.faults import mutants
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.emit import Source, emit
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.kernels.registry import cases
from tilesim.ptx.emitted import describe
from tilesim.ptx.lowering import Unsupported
from tilesim.ptx.program import lower
from tilesim.ptx.reader import read
from tilesim.ptx.syntax import Instruction

KERNELS = (
    "tilesim.kernels.hopper.copy::vector",
    "tilesim.kernels.hopper.copy::tensor",
    "tilesim.kernels.hopper.matmul_v2::matmul",
    "tilesim.kernels.hopper.matmul_v4::matmul",
    "tilesim.kernels.cluster.multicast::multicast",
)
LIMIT = timedelta(seconds=20)
#: faults that remove an instruction, by its opcode
DROPPED = {
    r"mbarrier\.arrive": "arrive dropped",
    r"mbarrier\.init": "init dropped",
    r"mbarrier\.inval": "inval dropped",
    r"fence\.proxy\.async": "proxy fence dropped",
    r"fence\.mbarrier_init": "mbarrier_init fence dropped",
    r"wgmma\.fence": "wgmma fence dropped",
    r"wgmma\.wait_group": "wgmma wait dropped",
    r"(wgmma|cp\.async(\.bulk)?)\.commit_group": "group commit dropped",
    r"cp\.async\.bulk\.wait_group": "store not awaited",
    r"cp\.async\.wait_": "cp.async wait dropped",
    r"cp\.async\.bulk\..*mbarrier": "copy dropped",
    r"(bar|barrier)(\.cta)?\.(sync|arrive)": "named barrier dropped",
    r"barrier\.cluster\.": "cluster barrier halved",
}
#: what is done to PTX only
RETARGETED, SWAPPED = "another barrier", "changed places"
_SYNCHRONISES = re.compile("|".join(DROPPED) + r"|mbarrier\.")


@dataclass(frozen=True)
class Mutant:
    """A text with one fault at a line of the kernel."""

    fault: str
    line: int
    what: str
    text: str


class Compiled:
    """A program's PTX, and where its instructions lie in it."""

    def __init__(self, program: Program) -> None:
        self.source: Source = emit(program)
        self.text = compile_ptx(self.source)
        self._starts = [0, *(m.end() for m in re.finditer("\n", self.text))]
        body = read(self.text, "k.ptx").entries[0].body
        self.code = () if body is None else body.code

    def lowered(self, text: str) -> Mir:
        """The kernel of a changed text."""
        module = read(text, "k.ptx")
        return lower(module, module.entries[0], describe(self.source))

    def span(self, at: Instruction) -> tuple[int, int]:
        """Where an instruction is, its guard included, up to its semicolon."""
        start = self._starts[at.place.line - 1] + at.place.column - 1
        return start, self.text.index(";", start) + 1

    def line(self, at: Instruction) -> int:
        """The kernel's line that an instruction comes from."""
        found = None if at.located is None else self.source.loc(at.located.outermost.line)
        return 0 if found is None else found.line

    def mutants(self) -> Iterator[Mutant]:
        """Every text with one fault."""
        before: Instruction | None = None
        for number, at in enumerate(self.code):
            if at.base in ("bra", "brx", "ret") or self._is_target(number):
                before = None
            if not _SYNCHRONISES.match(at.opcode):
                continue
            start, end = self.span(at)
            old = self.text[start:end]
            for fault, new in changed(old, at.opcode):
                text = self.text[:start] + new + self.text[end:]
                yield Mutant(fault, self.line(at), f"{at.place.line}: {old} -> {new}", text)
            if before is not None and before.opcode != at.opcode:
                first, stop = self.span(before)
                other = self.text[first:stop]
                text = self.text[:first] + old + self.text[stop:start] + other + self.text[end:]
                yield Mutant(SWAPPED, self.line(at), f"{at.place.line}: {other} <-> {old}", text)
            before = at

    def _is_target(self, number: int) -> bool:
        """Whether something may jump between this instruction and the one before."""
        if number == 0:
            return True
        end = self.span(self.code[number - 1])[1]
        return ":\n" in self.text[end : self.span(self.code[number])[0]]


def changed(old: str, opcode: str) -> Iterator[tuple[str, str]]:
    """Faults and what they make of an instruction."""
    for pattern, fault in DROPPED.items():
        if re.match(pattern, opcode):
            yield fault, ""
            break
    if opcode.startswith("mbarrier"):
        yield RETARGETED, re.sub(r"\[(%\w+)\]", r"[\1+8]", old)
    if opcode.startswith("mbarrier.arrive"):
        yield "arrive duplicated", old + old
    if "expect_tx" in opcode and "arrive" in opcode:
        yield "wrong bytes", _with_last(old, "shl.b32 %changed, {}, 1;")
        yield "bytes not expected", re.sub(r", [^,]*;$", ";", old.replace(".expect_tx", ""))
    if opcode.startswith("mbarrier.init"):
        yield "wrong arrival count", _with_last(old, "add.u32 %changed, {}, 1;")
    if "try_wait.parity" in opcode:
        yield "wrong parity", _with_last(old, "xor.b32 %changed, {}, 1;")
        yield (
            "wait dropped",
            re.sub(r"mbarrier\S*\s+(\S+), .*", r"mov.pred \1, 1;", old, flags=re.S),
        )
    if ".wait_group" in opcode:
        yield "wrong group count", re.sub(r"(\d+)\s*;$", lambda n: f"{int(n[1]) + 1};", old)
    if opcode.startswith("cp.async.bulk.wait_group") and ".read" not in opcode:
        yield "only reads awaited", old.replace("wait_group", "wait_group.read")


def _with_last(old: str, made: str) -> str:
    """The instruction with another last operand, which ``made`` computes from its own."""
    last = re.search(r"([^\s,]+)\s*;$", old)
    assert last is not None
    return f"{{ .reg .b32 %changed; {made.format(last[1])} {old[: last.start()]}%changed; }}"


def verdict(program: Program | Mir) -> str:
    """The verdict, or that the program is refused."""
    try:
        return check(program, time_limit=LIMIT).verdict
    except InvalidProgram:
        return "rejected"


def found(verdicts: set[str]) -> bool:
    """Whether a fault was found by any of these."""
    return not verdicts.isdisjoint(("failed", "rejected"))


@dataclass
class Row:
    """Of one fault: mutants of PTX, those found, those with a counterpart, those that agree."""

    made: int = 0
    found: int = 0
    compared: int = 0
    agree: int = 0


def compared(program: Program, rows: dict[str, Row]) -> Iterator[str]:
    """Adds a kernel's mutants to the table; yields those on which the two disagree."""
    counterparts: dict[tuple[str, int], list[Program]] = {}
    for one in mutants(program):
        counterparts.setdefault((one.fault, one.loc.line), []).append(one.program)
    known: dict[tuple[str, int], set[str]] = {}
    compiled = Compiled(program)
    for mutant in compiled.mutants():
        row = rows.setdefault(mutant.fault, Row())
        try:
            says = verdict(compiled.lowered(mutant.text))
        except Unsupported as error:
            says = f"unsupported: {error}"
        row.made += 1
        row.found += found({says})
        key = mutant.fault, mutant.line
        if key not in counterparts:
            continue
        if key not in known:
            known[key] = {verdict(p) for p in counterparts[key]}
        row.compared += 1
        if found({says}) == found(known[key]) or says in known[key]:
            row.agree += 1
        else:
            theirs = ", ".join(sorted(known[key]))
            where = f"{program.name}, line {mutant.line}, {mutant.fault}"
            yield f"{where}: PTX {says}, IR {theirs}: {mutant.what}"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*", default=KERNELS, help="targets of the gallery")
    wanted = parser.parse_args().kernels
    rows: dict[str, Row] = {}
    disagree: list[str] = []
    for case in cases():
        if str(case.target) in wanted:
            disagree += compared(case.kernel.build(**case.params), rows)
    print("| fault | mutants | found | with a counterpart | same |\n|---|---:|---:|---:|---:|")
    for fault, row in sorted(rows.items()):
        print(f"| {fault} | {row.made} | {row.found} | {row.compared} | {row.agree} |")
    print("", *disagree, sep="\n")


if __name__ == "__main__":
    main()
