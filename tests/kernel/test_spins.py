"""Loops that only poll an mbarrier are waits; those that do more are not covered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kernel.pairs import PAIRS
from tests.litmus.sections import all_rows
from tests.litmus.table import Rejected, Row
from tests.ptx.test_check import ARRIVE, INIT, program
from tilesim.arith.types import pred
from tilesim.ir.expr import Var
from tilesim.ir.mir import Branch, Instruction, Mir
from tilesim.ir.ops.mbarrier import MbarrierTryWait, MbarrierWait
from tilesim.proof.check import certify
from tilesim.ptx.plain import plain
from tilesim.transforms.lower import lower
from tilesim.transforms.rewrite import renumbered

POLL = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n"
ROWS = [row for row in all_rows() if row.id[-1] in "147" and not isinstance(row.practice, Rejected)]

#: loops, each behind an arrival; the poll answers in %p1, %r7 and %p3 are 0
WAITS = {
    "a branch back": f"L: {POLL}@!%p1 bra L;",
    "an exit and a jump back": f"L: {POLL}@%p1 bra D;\nbra L;\nD: bar.warp.sync -1;",
    "a test": f"L: {POLL.replace('try', 'test')}@!%p1 bra L;",
    "an answer as a number": (
        f"L: {POLL}selp.b32 %r5, 1, 0, %p1; setp.eq.s32 %p2, %r5, 0;\n@%p2 bra L;"
    ),
    "an address that each iteration computes": (
        "L: add.u32 %r6, %r1, 8; sub.u32 %r6, %r6, 8;\n"
        f"{POLL.replace('[%r1]', '[%r6]')}@!%p1 bra L;"
    ),
    "what each iteration computes behind the poll": f"L: {POLL}add.u32 %r6, %r7, 1;\n@!%p1 bra L;",
    "a sleep": f"L: {POLL}nanosleep.u32 20;\n@!%p1 bra L;",
    "a jump to a jump": f"L: {POLL}@!%p1 bra M;\nbra D;\nM: bra L;\nD: bar.warp.sync -1;",
    "a jump to the head": f"@%p3 bra L;\nL: add.u32 %r6, %r1, 0;\n{POLL}@!%p1 bra L;",
}
#: the nearest of them that do more
MORE = {
    "a count before the poll": f"L: add.u32 %r7, %r7, 1;\n{POLL}@!%p1 bra L;",
    "a count behind the poll": f"L: {POLL}add.u32 %r7, %r7, 1;\n@!%p1 bra L;",
    "a register that is set only where the poll has failed": (
        f"L: {POLL}@%p1 bra D;\nmov.u32 %r7, 1;\nbra L;\nD: bar.warp.sync -1;"
    ),
    "a register that is set before the poll but in the first iteration": (
        f"bra M;\nL: mov.u32 %r7, 1;\nM: {POLL}@!%p1 bra L;"
    ),
    "a jump behind the head": f"@%p3 bra M;\nL: add.u32 %r6, %r7, 1;\nM: {POLL}@!%p1 bra L;",
    "the answer before": f"L: selp.b32 %r7, 1, 0, %p1;\n{POLL}@!%p1 bra L;",
    "a register of the iteration before": (
        f"L: mov.u32 %r6, %r7;\n{POLL}mov.u32 %r7, 1;\n@!%p1 bra L;"
    ),
    "a store": f"L: {POLL}st.shared.u32 [%r1+16], 1;\n@!%p1 bra L;",
    "an arrival": f"L: {POLL}{ARRIVE}@!%p1 bra L;",
    "a load": f"L: {POLL}ld.shared.u32 %r6, [%r1+16];\n@!%p1 bra L;",
    "another poll": f"L: {POLL}{POLL.replace('%p1', '%p2')}@!%p1 bra L;",
    "a clock": f"L: {POLL}mov.u32 %r6, %clock;\n@!%p1 bra L;",
    "a predicate before an instruction": f"L: {POLL}@%p3 mov.u32 %r6, 1;\n@!%p1 bra L;",
    "a predicate before the poll": f"L: @%p4 {POLL}@!%p1 bra L;",
    "an exit that other things decide": f"L: {POLL}or.pred %p2, %p1, %p3;\n@!%p2 bra L;",
    "a barrier": f"L: {POLL}bar.warp.sync -1;\n@!%p1 bra L;",
    "a loop while it answers yes": f"L: {POLL}@%p1 bra L;",
}


ELSE = POLL.replace("%p1", "%p2")
BESIDE = (
    "@%p0 mbarrier.init.shared::cta.b64 [%r1+8], 1;\nbar.warp.sync -1;\n"
    "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1+8];\n"
)
OTHER = ELSE.replace("[%r1]", "[%r1+8]")
#: polls that may spare a wait
SPARED = {
    "a jump over a loop": f"{POLL}@%p1 bra D;\nL: {ELSE}@!%p2 bra L;\nD: bar.warp.sync -1;",
    "a loop elsewhere": (
        f"{POLL}@!%p1 bra L;\nD: bar.warp.sync -1;\nret;\nL: {ELSE}@!%p2 bra L;\nbra D;"
    ),
    "an address behind the poll": (
        f"{POLL}@%p1 bra D;\nadd.u32 %r6, %r1, 0;\nL: {ELSE.replace('%r1', '%r6')}@!%p2 bra L;\n"
        "D: bar.warp.sync -1;"
    ),
    "nothing else to do": f"{POLL}@%p1 bra D;\nmov.u32 %r6, 1;\nD: bar.warp.sync -1;",
    "the answer of the loop": (
        f"{POLL}@%p1 bra D;\nL: {POLL}@!%p1 bra L;\nD: @%p1 bra E;\ntrap;\nE: bar.warp.sync -1;"
    ),
}
#: the nearest of them by which more is decided, and why they are not covered
DECIDING = {
    "a wait for something else": (
        f"{BESIDE}{POLL}@%p1 bra D;\nL: {OTHER}@!%p2 bra L;\nD: bar.warp.sync -1;",
        "of something else",
    ),
    "a store": (
        f"{POLL}@%p1 bra D;\nst.shared.u32 [%r1+16], 1;\nD: bar.warp.sync -1;", "is polled decides"
    ),
    "an end": (f"{POLL}@%p1 bra D;\nret;\nD: bar.warp.sync -1;", "is polled decides"),
    "a trap": (f"{POLL}@%p1 bra D;\ntrap;\nD: bar.warp.sync -1;", "is polled decides"),
    "a warp barrier between": (
        f"{POLL}@%p1 bra D;\nbar.warp.sync -1;\nD: bar.warp.sync -1;", "is polled decides"
    ),
    "a predicate": (
        f"{POLL}@%p1 bra D;\n@%p4 mov.u32 %r6, 1;\nD: bar.warp.sync -1;", "is polled decides"
    ),
    "another poll": (f"{POLL}@%p1 bra D;\n{ELSE}D: bar.warp.sync -1;", "is polled decides"),
    "a register that decides behind it": (
        f"{POLL}@%p1 bra D;\nmov.u32 %r7, 1;\nD: setp.eq.u32 %p2, %r7, 1;\n@%p2 bra E;\n"
        "bar.warp.sync -1;\nE: bar.warp.sync -1;", "is polled decides",
    ),
    "a loop that counts": (f"L: add.u32 %r7, %r7, 1;\n{POLL}@!%p1 bra L;", "is polled decides"),
    "a predicate that data decides if it answers yes": (
        f"setp.eq.u32 %p5, %r9, 7;\n{POLL}@!%p1 setp.eq.u32 %p5, %r7, 0;\nmov.u32 %r6, 1;\n"
        "@%p5 mov.u32 %r6, 2;\n@!%p1 mov.u32 %r6, 1;\nsetp.eq.u32 %p6, %r6, 2;\n@%p6 bra D;\n"
        "bar.warp.sync -1;\nD: bar.warp.sync -1;", "is polled decides the guard",
    ),
    "two polls": (
        f"{POLL}{ELSE}@%p1 bra D;\n@%p2 bra D;\nmov.u32 %r6, 1;\nD: bar.warp.sync -1;",
        "is polled decides",
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", SPARED.values(), ids=SPARED)
def test_a_poll_may_spare_a_loop_of_polls(body: str) -> None:
    assert answer(body) == "certified"


@pytest.mark.parametrize(("body", "why"), DECIDING.values(), ids=DECIDING)
def test_a_poll_that_decides_more_is_not_covered(body: str, why: str) -> None:
    said = answer(body)
    assert said.startswith("not covered: ")
    assert why in said


def answer(loop: str, arrive: str = ARRIVE) -> str:
    start = (
        "mov.u32 %r7, 0; setp.ne.u32 %p1, %r7, 0; setp.ne.u32 %p3, %r7, 0; "
        "setp.eq.u32 %p4, %r7, 0;\n"
    )
    word = "@%p0 st.shared.u32 [%r1+16], 1;\nbar.warp.sync -1;\n"
    return str(certify(program(f"{start}{INIT}{word}{arrive}{loop}", by=plain)))


@pytest.mark.parametrize("loop", WAITS.values(), ids=WAITS)
def test_a_loop_that_only_polls_is_a_wait(loop: str) -> None:
    assert answer(loop) == "certified"
    assert answer(loop, arrive="").startswith("refuted: deadlock")


@pytest.mark.parametrize("loop", MORE.values(), ids=MORE)
def test_one_that_does_more_is_not_covered(loop: str) -> None:
    assert answer(loop).startswith("not covered: ")
    assert "poll" in answer(loop)


def with_branches(mir: Mir) -> Mir:
    """A branch over each wait with a guard, in place of that."""
    return renumbered(mir, {
        number: (
            Instruction(Branch(target=number + 1, cond=i.guard, sense=False), None, i.role),
            replace(i, guard=None),
        )
        for number, i in enumerate(mir.code)
        if isinstance(i.what, MbarrierWait) and i.guard is not None
    })  # fmt: skip


def with_loops(mir: Mir) -> Mir:
    """A loop of polls in place of each wait."""
    mir = with_branches(mir)
    instead: dict[int, tuple[Instruction, ...]] = {}
    for number, instruction in enumerate(mir.code):
        wait = instruction.what
        if isinstance(wait, MbarrierWait):
            result = Var(f"answer{number}", pred)
            poll = MbarrierTryWait(
                result=result, mbar=wait.mbar, phase=wait.phase, parity=wait.parity, sem=wait.sem,
                scope=wait.scope, loc=wait.loc,
            )  # fmt: skip
            back = Branch(target=number, cond=result, sense=False)
            instead[number] = (instruction.doing(poll), Instruction(back, None, instruction.role))
    made = renumbered(mir, instead)
    new = tuple(i.what.result for i in made.code if isinstance(i.what, MbarrierTryWait))
    kernel = made.kernel
    return replace(made, kernel=replace(kernel, variables=(*kernel.variables, *new)))


def peeks(mir: Mir) -> bool:
    """Whether a wait of a program has a guard."""
    return any(isinstance(i.what, MbarrierWait) and i.guard is not None for i in mir.code)


@pytest.mark.parametrize("right", [False, True])
def test_branches_and_loops_change_no_answer_of_peeks(*, right: bool) -> None:
    tried = 0
    for pair in PAIRS:
        mir = pair.mir(right=right)
        if peeks(mir):
            one, other = (certify(x, strict=pair.strict) for x in (mir, with_loops(mir)))
            assert (one.verdict, one.rule) == (other.verdict, other.rule), pair.program.__name__
            tried += 1
    assert tried >= 5


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_loops_in_place_of_waits_change_no_answer(row: Row) -> None:
    mir = lower(row.build())
    one, other = certify(mir), certify(with_loops(mir))
    assert (one.verdict, one.rule) == (other.verdict, other.rule)
