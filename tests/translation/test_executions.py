"""Single threads of both texts: what they execute, how often, and with which values."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from tests.translation.small_kernels import function_of, ptx_of
from tilesim.cubin.image import KernelInfo, Symbol
from tilesim.ptx.inline import flatten
from tilesim.ptx.parser import read
from tilesim.translation import executions
from tilesim.translation.executions import Executions, compare
from tilesim.translation.float_words import computed
from tilesim.translation.inputs import Inputs, Memory, Waits
from tilesim.translation.validate import paired

_INFO = KernelInfo("k", (), 0x210, (64, 1, 1), None, None, {}, 32, 0, 0, 0, "13.0")


class _Image:
    """A cubin of which nothing is known but the size of a block."""

    def info(self, symbol: object) -> KernelInfo:
        return _INFO

    def section(self, name: str) -> None:
        return None


def executed(body: str, sass: str) -> tuple[Executions, dict[int, str]]:
    """Executions of both texts, and the name of each line of the PTX that has one."""
    written = ptx_of(body)
    labels = {
        found[1]: number
        for number, line in enumerate(written.split("\n"), 1)
        if (found := re.search(r"//(\w+)", line))
    }
    names = {number: name for name, number in labels.items()}
    text = re.sub(r"//\w+", "", written)
    module = read(text)
    translation = paired(
        cast(Any, _Image()), Symbol("k", 0, 0, 0, 0), flatten(module, module.entries[0]),
        function_of(sass, labels), text,
    )  # fmt: skip
    return compare(translation), names


def differences(body: str, sass: str) -> list[tuple[str, str, str]]:
    """What executions show: the PTX line by its name, what differs, and how."""
    found, names = executed(body, sass)
    return [
        (names[one.line], one.kind, one.sentence.partition(", ")[2].partition(" (thread")[0])
        for one in found.differences.values()
    ]


MBARRIER = ".shared .align 8 .b64 bar;\nmov.u32 %r9, bar;\n"
#: where a variable of shared memory is
AT = "UMOV UR4, 0x400\nS2UR UR5, SR_CgaCtaId\nULEA UR4, UR5, UR4, 0x18\n"

ONE_ARRIVES = (
    MBARRIER
    + """
mov.u32 %r1, %tid.x;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra END;
mbarrier.arrive.shared::cta.b64 _, [%r9]; //arrive
END:
"""
)


@pytest.mark.parametrize(
    ("sass", "what"),
    [
        ("@P0 EXIT\narrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ", []),
        ("arrive @!P0 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ", []),
        ("@!P0 EXIT\narrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ",
         ["executed 1 times in the PTX, 0 times in the SASS"]),
        ("arrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ",
         ["executed 0 times in the PTX, 1 times in the SASS"]),
    ],
)  # fmt: skip
def test_a_guard_is_that_of_the_ptx(sass: str, what: list[str]) -> None:
    made = f"{AT}S2R R0, SR_TID.X\nISETP.NE.AND P0, PT, R0, RZ, PT\n{sass}\nEXIT"
    expected = [("arrive", "executions", one) for one in what]
    assert differences(ONE_ARRIVES, made) == expected


def test_a_guard_that_is_not_known_is_not_compared() -> None:
    body = ONE_ARRIVES.replace("setp.ne.u32 %p1, %r1, 0;", "setp.ne.f32 %p1, %f1, %f2;")
    sass = f"{AT}FSETP.NE.AND P0, PT, R3, R4, PT\nEXIT" + "\narrive SYNCS.ARRIVE.A1T0 RZ, [UR4], RZ"
    assert differences(body, sass) == []
    sass = f"{AT}FSETP.NE.AND P0, PT, R3, R4, PT\narrive @P0 SYNCS.ARRIVE.A1T0 RZ, [UR4], RZ\nEXIT"
    assert differences(body.replace("@%p1 bra END;", ""), sass) == []


LOOP = (
    MBARRIER
    + """
mov.u32 %r1, 0;
LOOP:
and.b32 %r2, %r1, 1;
AGAIN:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r9], %r2; //wait
@!%p1 bra AGAIN;
mbarrier.arrive.shared::cta.b64 _, [%r9]; //arrive
add.u32 %r1, %r1, 1;
setp.lt.u32 %p2, %r1, 4;
@%p2 bra LOOP;
"""
)
LOOP_OF_SASS = f"""
{AT}
UMOV UR6, 0x0
LOOP:
ULOP3.LUT UR7, UR6, 0x1, URZ, 0xc0, !UPT
USHF.L.U32 UR7, UR7, 0x1f, URZ
IMAD.U32 R0, RZ, RZ, UR7
AGAIN:
wait SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0
@!P0 BRA AGAIN
arrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ
UIADD3 UR6, UR6, 0x1, URZ
ISETP.GE.U32.AND P1, PT, UR6, 0x4, PT
@!P1 BRA LOOP
EXIT
"""


@pytest.mark.parametrize(
    ("was", "now", "seen"),
    [
        ("", "", set()),
        ("UR6, 0x4,", "UR6, 0x3,", {"wait", "arrive"}),  # a round less
        ("UR6, 0x1, URZ, 0xc0", "UR6, 0x0, URZ, 0xc0", {"wait"}),  # the parity stays 0
        ("wait SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4]",
         "wait SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4+0x8]", {"wait"}),
        ("@!P0 BRA AGAIN", "NOP", {"wait"}),  # goes on when a try has failed
        ("@!P0 BRA AGAIN", "@P0 BRA AGAIN", {"wait"}),
        ("RZ, [UR4], RZ", "RZ, [UR4+0x8], RZ", {"arrive"}),
    ],
)  # fmt: skip
def test_rounds_parities_and_retries_of_a_loop(was: str, now: str, seen: set[str]) -> None:
    assert LOOP_OF_SASS.count(was) == 1 or not was
    found = differences(LOOP, LOOP_OF_SASS.replace(was, now))
    assert {name for name, *_ in found} >= seen
    assert bool(found) == bool(seen)


@pytest.mark.parametrize(("again", "seen"), [("[UR4], R0", False), ("[UR4+0x8], R0", True)])
def test_the_second_look_of_a_wait_is_at_the_same_mbarrier(again: str, *, seen: bool) -> None:
    was = "wait SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0\n"
    look = f"wait @!P0 NANOSLEEP.SYNCS 0x64\nwait @!P0 SYNCS.PHASECHK.TRANS64 P0, {again}\n"
    assert LOOP_OF_SASS.count(was) == 1
    found = differences(LOOP, LOOP_OF_SASS.replace(was, was + look))
    assert {name for name, *_ in found} == ({"wait"} if seen else set())


def test_a_wait_that_is_peeled_and_a_loop_that_is_unrolled_are_the_same() -> None:
    once = """
    wait SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], {parity}
    @P0 BRA OVER{n}
    AGAIN{n}:
    wait SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], {parity}
    @!P0 BRA AGAIN{n}
    OVER{n}:
    arrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ
    """
    made = [once.format(n=n, parity=("RZ", "R1")[n % 2]) for n in range(4)]
    assert differences(LOOP, f"{AT}MOV R1, 0x80000000\n{''.join(made)}\nEXIT") == []
    found = differences(LOOP, f"{AT}MOV R1, 0x80000000\n{''.join(made[:3])}\nEXIT")
    assert {name for name, *_ in found} == {"wait", "arrive"}


@pytest.mark.parametrize(("now", "seen"), [(0x40, False), (0x20, True), (0x60, True)])
def test_bytes_of_two_instructions_may_be_expected_by_one(now: int, *, seen: bool) -> None:
    body = (
        MBARRIER
        + """
    ld.param.u32 %r3, [p];
    and.b32 %r3, %r3, 0;
    add.u32 %r3, %r3, 32;
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r9], %r3; //more
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], %r3; //arrive
    """
    )
    sass = f"{AT}MOV R2, {now:#x}\narrive SYNCS.ARRIVE.TRANS64 RZ, [UR4], R2\nEXIT"
    assert bool(differences(body, sass)) == seen


@pytest.mark.parametrize(("count", "seen"), [(2, []), (3, ["expected arrivals"])])
def test_the_count_of_an_mbarrier_is_what_its_word_says(count: int, seen: list[str]) -> None:
    body = (
        MBARRIER
        + """
    mov.u32 %r2, %ntid.x;
    shr.u32 %r2, %r2, 5;
    mbarrier.init.shared::cta.b64 [%r9], %r2; //init
    """
    )
    sass = f"""
    {AT}
    UMOV UR6, {count:#x}
    UIADD3 UR6, -UR6, 0x100000, URZ
    USHF.L.U32 UR7, UR6, 0xb, URZ
    USHF.L.U32 UR6, UR6, 0x1, URZ
    init SYNCS.EXCH.64 URZ, [UR4], UR6
    EXIT
    """
    assert [kind for _, kind, _ in differences(body, sass)] == seen


def test_what_is_executed_once_for_a_warp_is_not_compared_lane_by_lane() -> None:
    body = (
        MBARRIER
        + """
    elect.sync %r2|%p1, -1;
    @%p1 mbarrier.init.shared::cta.b64 [%r9], 1; //init
    """
    )
    word = "UMOV UR6, 0x1ffffe\nUMOV UR7, 0x7ffff800\n"
    assert differences(body, f"{AT}{word}init SYNCS.EXCH.64 URZ, [UR4], UR6\nEXIT") == []
    twice = "init SYNCS.EXCH.64 URZ, [UR4], UR6\n" * 2
    assert [one[:2] for one in differences(body, f"{AT}{word}{twice}EXIT")] == [
        ("init", "executions")
    ]


def test_before_a_trap_anything_may_be_left_out() -> None:
    body = ONE_ARRIVES.replace("END:", "trap; //trap\nEND:")
    sass = "S2R R0, SR_TID.X\nISETP.NE.AND P0, PT, R0, RZ, PT\n@P0 EXIT\n{}\ntrap BPT.TRAP 0x1"
    arrive = "arrive @P1 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ"
    never = "ISETP.NE.AND P1, PT, RZ, RZ, PT\n"
    assert differences(body, AT + never + sass.format(arrive)) == []
    assert differences(
        ONE_ARRIVES, AT + never + sass.format(arrive).replace("BPT.TRAP 0x1", "EXIT")
    )


def test_variables_lie_in_shared_memory_in_some_order() -> None:
    body = """
    .shared .align 8 .b64 one;
    .shared .align 8 .b64 two;
    mov.u32 %r1, two;
    mbarrier.arrive.shared::cta.b64 _, [%r1]; //first
    mov.u32 %r2, one;
    mbarrier.arrive.shared::cta.b64 _, [%r2]; //second
    """
    sass = f"{AT}first SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4{{}}], RZ\n"
    sass += "second SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4{}], RZ\nEXIT"
    assert differences(body, sass.format("+0x8", "")) == []
    assert differences(body, sass.format("", "+0x8")) == []
    assert differences(body, sass.format("", ""))


def test_an_execution_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executions, "_MOST_STEPS", 500)
    body = MBARRIER + "LOOP:\nmbarrier.arrive.shared::cta.b64 _, [%r9]; //arrive\nbra LOOP;\n"
    sass = f"{AT}LOOP:\narrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ\nBRA LOOP\nEXIT"
    assert differences(body, sass) == []


@pytest.mark.parametrize(("rounds", "unreached"), [(10, set()), (400, {"behind"})])
def test_what_is_not_reached_for_the_bound_of_steps_is_said(
    rounds: int, unreached: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is behind a loop that has an end, or has none within the steps."""
    monkeypatch.setattr(executions, "_MOST_STEPS", 500)
    body = f"""{MBARRIER}
    mov.u32 %r1, 0;
    LOOP:
    mbarrier.arrive.shared::cta.b64 _, [%r9]; //arrive
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, {rounds};
    @%p1 bra LOOP;
    bar.sync 0; //behind
    """
    sass = f"""{AT}MOV R1, RZ
    LOOP:
    arrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ
    IADD3 R1, PT, PT, R1, 0x1, RZ
    ISETP.GE.U32.AND P0, PT, R1, {rounds:#x}, PT
    @!P0 BRA LOOP
    behind BAR.SYNC.DEFER_BLOCKING 0x0
    EXIT
    """
    found, names = executed(body, sass)
    assert not found.differences
    assert {names[line] for line, _ in found.unreached} == unreached
    assert {names[line] for line, _ in found.compared} == {"arrive", "behind"} - unreached


def test_a_branch_that_is_not_known_is_no_bound_of_steps() -> None:
    body = ONE_ARRIVES.replace("mov.u32 %r1, %tid.x", "mov.u32 %r1, %clock")
    sass = "@P0 EXIT\narrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ\nEXIT"
    found, _ = executed(body, f"{AT}{sass}")
    assert (found.compared, found.unreached) == (set(), set())


REGISTERS = """
mov.u32 %r1, %tid.x;
setp.ge.u32 %p1, %r1, 32;
@%p1 bra END;
setmaxnreg.dec.sync.aligned.u32 40; //registers
END:
"""


@pytest.mark.parametrize(
    ("sass", "what"),
    [
        ("@P0 EXIT\nregisters USETMAXREG.DEALLOC.CTAPOOL 0x28", []),
        ("@P0 EXIT\nregisters USETMAXREG.DEALLOC.CTAPOOL 0x28\n"
         "registers USETMAXREG.DEALLOC.CTAPOOL 0x28", []),
        ("registers USETMAXREG.DEALLOC.CTAPOOL 0x28",
         ["executed 0 times in the PTX, 1 times in the SASS"]),
        ("@!P0 EXIT\nregisters USETMAXREG.DEALLOC.CTAPOOL 0x28",
         ["executed 1 times in the PTX, 0 times in the SASS"]),
    ],
)  # fmt: skip
def test_a_sequence_of_a_warp_is_executed_if_the_ptx_executes_it(
    sass: str, what: list[str]
) -> None:
    """How often is not compared: ptxas may make a loop of it."""
    threads = "S2R R0, SR_TID.X\nISETP.GE.U32.AND P0, PT, R0, 0x20, PT\n"
    assert [one[2] for one in differences(REGISTERS, f"{threads}{sass}\nEXIT")] == what


@pytest.mark.parametrize(("guard", "seen"), [("", False), ("@P1 ", True)])
def test_a_fence_is_executed_if_the_ptx_executes_it(guard: str, *, seen: bool) -> None:
    rows = f"ISETP.NE.AND P1, PT, RZ, RZ, PT\nfence {guard}CCTL.IVALL\nEXIT"
    assert bool(differences("fence.acquire.gpu; //fence", rows)) == seen


# ---------------------------------------------------------------------- inputs


def test_waits_fail_as_often_in_both_texts_and_are_over_in_the_end() -> None:
    inputs = Inputs((), 1, (0, 0, 0), (32, 1, 1))
    answers = []
    for _ in range(2):
        waits = Waits(inputs)
        answers.append([waits.over(1024 + 8 * (n % 4), 0, n) for n in range(40)])
    assert answers[0] == answers[1]
    assert {*answers[0]} == {True, False}
    assert not any(answers[0][n : n + 12 : 4] == [False] * 3 for n in range(28))


def test_memory_is_what_was_written_else_what_is_drawn() -> None:
    memory = Memory(Inputs((), 1, (0, 0, 0), (32, 1, 1)))
    before = memory.load(2048, 4, "shared")
    assert before is not None
    memory.store(2049, 1, 0xAB, "shared")
    assert memory.load(2048, 4, "shared") == before & 0xFFFF00FF | 0xAB00
    memory.store(2048, 4, None, "shared")
    assert memory.load(2048, 4, "shared") is None


@pytest.mark.parametrize("divisor", [1, 3, 7, 100, 641, 65537, 1 << 31, (1 << 32) - 1])
def test_reciprocals_divide_whole_numbers(divisor: int) -> None:
    rounded = computed("I2F", ("U32", "RP"), [divisor])
    word = computed("MUFU", ("RCP",), [rounded])
    assert word is not None
    whole = computed("F2I", ("FTZ", "U32", "TRUNC", "NTZ"), [word + 0xFFFFFFE])
    assert whole is not None
    exact = (1 << 32) / divisor
    assert exact * 0.9999 - 2 <= whole <= exact
    assert computed("F2I", ("U32",), [word]) is None
    assert computed("MUFU", ("EX2",), [word]) is None
