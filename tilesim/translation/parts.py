"""What stands beside a synchronising SASS instruction: a fence before it, an invalidation behind.

ptxas makes of an instruction that releases beyond the CTA a ``MEMBAR`` and the instruction, of one
that acquires there the instruction and ``CCTL.IVALL``, which drops the lines of the L1 cache. Each
copy must have these parts on every path: no write may come between the fence and the instruction,
no load of global memory between the instruction and the invalidation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tilesim.cubin.sass import Function, Instruction
from tilesim.records import dataclass
from tilesim.translation.pairs import Pair, Translation
from tilesim.translation.validation import Difference

#: beyond the CTA
_FAR = r"\.(?:cluster|gpu|sys)\b"
_RELEASES = re.compile(
    rf"(?:mbarrier\.arrive|st|atom|red)\S*\.(?:release|acq_rel)\S*{_FAR}"
    r"|barrier\.cluster\.arrive(?!\S*\.relaxed)"
)
_ACQUIRES = re.compile(
    rf"(?:mbarrier\.(?:test|try)_wait|ld|atom)\S*\.(?:acquire|acq_rel)\S*{_FAR}"
    r"|barrier\.cluster\.wait|cp\.async\.bulk\.wait_group(?!\.read)"
)
_FENCES = re.compile(rf"fence\.(?:acq_rel|sc)\S*{_FAR}|membar\.(?:gl|sys)")
_PROXY = re.compile(r"fence\.proxy\.async(?!::generic)")
_WRITES = re.compile(r"STS|STSM|STG|ST[. ]|ATOM|RED[GS]?[. ]|SYNCS\.EXCH")
_LOADS = re.compile(r"LDG[. ]|LD[. ]|LDGSTS")
_FENCE_FAR = re.compile(r"MEMBAR\.\w+\.(?:GPU|SYS)")
_FENCE = re.compile(r"MEMBAR\.")
_INVALIDATES = "CCTL.IVALL"
_SECTION = "PTX 9.7.13.5"


@dataclass(frozen=True)
class _Part:
    """A part that an instruction needs: its side, what it is, and what may not come between."""

    before: bool
    wanted: re.Pattern[str]
    between: re.Pattern[str]
    name: str


_RELEASE = _Part(True, _FENCE_FAR, _WRITES, "MEMBAR of the release")
_VIEW = _Part(True, _FENCE, _WRITES, "MEMBAR of the proxy fence")
_ACQUIRE = _Part(False, re.compile(re.escape(_INVALIDATES)), _LOADS, "CCTL.IVALL of the acquire")


def needed(opcode: str) -> Iterator[_Part]:
    """The parts that a PTX instruction needs."""
    if _RELEASES.match(opcode):
        yield _RELEASE
    if _PROXY.match(opcode):
        yield _VIEW
    if _ACQUIRES.match(opcode) or _FENCES.match(opcode):
        yield _ACQUIRE


def compare(translation: Translation) -> Iterator[Difference]:
    """Parts that copies of instructions lack."""
    seen: set[tuple[int, int, str]] = set()
    for pair in translation.pairs:
        copies = {one.pc: one for one in pair.copies}
        for part in needed(pair.step.opcode):
            for copy in pair.copies:
                at = _missing(translation.sass, copy, copies, part)
                key = (pair.step.place.line, copy.pc, part.name)
                if at is not None and key not in seen:
                    seen.add(key)
                    yield _lost(translation, pair, copy, part, at)


def _missing(
    sass: Function, copy: Instruction, copies: Mapping[int, Instruction], part: _Part
) -> Instruction | None:
    """The first access that a path from or to a copy meets without the part between them."""
    steps = sass.predecessors if part.before else sass.successors
    todo, seen = [*steps[copy.pc]], {copy.pc}
    while todo:
        pc = todo.pop(0)
        if pc in seen:
            continue
        seen.add(pc)
        one = sass.code[pc]
        if part.wanted.match(one.opcode) and _holds(one.guard, copy):
            continue
        if pc in copies and not part.before:
            continue  # the same instruction once more, which is followed by its own
        if part.between.match(str(one).removeprefix(f"@{one.guard} ")):
            return one
        todo += steps[pc]
    return None


def _holds(guard: str, copy: Instruction) -> bool:
    """Whether a guard holds where the copy has been executed, and done what it waits for."""
    return guard in ("", copy.guard, *copy.operands[:1])


def _lost(
    translation: Translation, pair: Pair, copy: Instruction, part: _Part, at: Instruction
) -> Difference:
    line = pair.step.place.line
    side = "before" if part.before else "behind"
    return Difference(
        kind="part",
        rule=_SECTION,
        effect="weaker",
        line=line,
        text=translation.text(line),
        sentence=(
            f"PTX line {line} ({pair.kind}) is {copy.opcode} at {copy.pc:#x} without the "
            f"{part.name}: {at} at {at.pc:#x} stands {side} it with none between"
        ),
        pc=copy.pc,
        sass=str(copy),
    )
