"""What stands beside a synchronising SASS instruction: a fence before it, an invalidation behind,
the other half of a pair.

ptxas makes of an instruction that releases beyond the CTA a ``MEMBAR`` and the instruction, of one
that acquires there the instruction and ``CCTL.IVALL``, which drops the lines of the L1 cache. Each
copy must have these parts on every path: nothing that the fence is for may come between it and the
instruction, as a write of the thread, or a wait that makes writes of others visible to it; nothing
that needs the invalidation may come before it, as a load of global memory.

Some instructions become two: the accesses of tensor memory to 16 lanes twice, and the arrival of
``cp.async`` that counts itself as pending first. Neither may be without the other.
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
#: of shared memory of the CTA alone
_PROXY_CTA = re.compile(r"fence\.proxy\.async\.shared::cta|fence\.proxy\.async\.global")
_SYSTEM = re.compile(r"\S*\.sys\b")
_HALVES = re.compile(r"tcgen05\.(?:ld|st)\S*\.16x32bx2\b")
_COUNTED = re.compile(r"cp\.async\.mbarrier\.arrive\.(?!noinc)")
_WRITES = re.compile(r"STS|STSM|STG|ST[. ]|ATOM|RED[GS]?[. ]|SYNCS\.EXCH")
#: loads, and what hands on to other threads of the SM, whose loads use the same cache
_LOADS = re.compile(r"LDG[. ]|LD[. ]|LDGSTS|BAR\.|SYNCS\.ARRIVE|UCGABAR_ARV|STG\S*STRONG|RED|ATOM")
#: what makes writes of other threads visible to this one, which a release hands on as well
_OBSERVES = r"BAR\.(?:SYNC|RED)|SYNCS\.PHASECHK|UCGABAR_WAIT|ACQBULK"
_HANDED_ON = re.compile(rf"{_WRITES.pattern}|{_OBSERVES}")
_FENCE_FAR = re.compile(r"MEMBAR\.\w+\.(?:GPU|SYS)")
_FENCE_SYSTEM = re.compile(r"MEMBAR\.\w+\.SYS")
_FENCE = re.compile(r"MEMBAR\.")
_SECTION = "PTX 9.7.13.5"


@dataclass(frozen=True)
class _Part:
    """A part that a copy needs whose opcode is ``of`` this: its side, what it is, and what may not
    come between. ``strict``: nor may the kernel begin or end between."""

    before: bool
    wanted: re.Pattern[str]
    between: re.Pattern[str]
    name: str
    of: re.Pattern[str] = re.compile("")
    strict: bool = False


def _other_half(before: bool, wanted: str, between: str, of: str) -> _Part:
    return _Part(
        before, re.compile(wanted), re.compile(between), f"{wanted} of it".replace("\\", ""),
        re.compile(of), strict=True,
    )  # fmt: skip


_RELEASE = _Part(True, _FENCE_FAR, _HANDED_ON, "MEMBAR of the release")
_RELEASE_SYSTEM = _Part(True, _FENCE_SYSTEM, _HANDED_ON, "MEMBAR of the release to the system")
_VIEW = _Part(True, _FENCE, _HANDED_ON, "MEMBAR of the proxy fence")
_VIEW_FAR = _Part(True, _FENCE_FAR, _HANDED_ON, "MEMBAR of the proxy fence beyond the CTA")
_ACQUIRE = _Part(False, re.compile(r"CCTL\.IVALL$"), _LOADS, "CCTL.IVALL of the acquire")
_OTHER_HALF = (
    _other_half(
        False, "(?:LDTM|STTM).16dp32bit_t16_t31", "LDTM|STTM|FENCE|SYNCS|BAR", r"\S*_t0_t15"
    ),
    _other_half(
        True, "(?:LDTM|STTM).16dp32bit_t0_t15", "LDTM|STTM|FENCE|SYNCS|BAR", r"\S*_t16_t31"
    ),
    _other_half(True, "SYNCS.ARRIVE.TRANS64.RED.A0T1", "SYNCS|ARRIVES", "ARRIVES"),
    _other_half(False, "ARRIVES.LDGSTSBAR.64.TRANSCNT", "SYNCS|ARRIVES", "SYNCS"),
)


def needed(opcode: str) -> Iterator[_Part]:
    """The parts that a PTX instruction needs."""
    system = _SYSTEM.match(opcode)
    if _RELEASES.match(opcode):
        yield _RELEASE_SYSTEM if system else _RELEASE
    if _PROXY.match(opcode):
        yield _VIEW if _PROXY_CTA.match(opcode) else _VIEW_FAR
    if _ACQUIRES.match(opcode) or _FENCES.match(opcode):
        yield _ACQUIRE
    if _HALVES.match(opcode):
        yield from _OTHER_HALF[:2]
    if _COUNTED.match(opcode):
        yield from _OTHER_HALF[2:]


def compare(translation: Translation) -> Iterator[Difference]:
    """Parts that copies of instructions lack."""
    seen: set[tuple[int, int, str]] = set()
    for pair in translation.pairs:
        copies = {one.pc: one for one in pair.copies}
        for part in needed(pair.step.opcode):
            for copy in pair.copies:
                if not part.of.match(copy.opcode):
                    continue
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
    if part.strict and not todo:
        return copy
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
        if part.strict and not steps[pc]:
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
