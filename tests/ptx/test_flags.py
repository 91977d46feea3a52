"""Words of global memory that CTAs wait for, as CUDA's kernels do it: each one beside its wrong
twins."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import FIRST, HEAD
from tilesim.checker import Report, check
from tilesim.ptx.launch import Contents, Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

CTAS = 3
#: every thread stores to its word, and reads the word of the next CTA's when all have come
STORE = "st.global.u32 [%rd5], %r1;\n"
LOAD = "ld.global.u32 %r7, [%rd6];\n"
START = (
    "ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [c]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; "
    "add.u32 %r2, %r0, 1; rem.u32 %r2, %r2, 3; setp.ne.u32 %p0, %r1, 0; mad.lo.u32 %r3, %r0, 64, "
    "%r1; mad.lo.u32 %r4, %r2, 64, %r1; mul.wide.u32 %rd3, %r3, 4; mul.wide.u32 %rd4, %r4, 4; "
    "add.u64 %rd5, %rd1, %rd3; add.u64 %rd6, %rd1, %rd4;\n"
)
FENCE = "fence.acq_rel.gpu;\n"
ADD = "red.release.gpu.global.add.u32 [%rd2], 1;\n"
#: cooperative groups: one CTA adds what brings the sum of all to the highest bit
MASTER = "setp.eq.u32 %p1, %r0, 0; selp.b32 %r8, {first}, 1, %p1;\n"
DRAW = "atom.add.release.gpu.global.u32 %r9, [%rd2], %r8;\n"
FLIPPED = (
    "L{n}: ld.acquire.gpu.global.u32 %r10, [%rd2];\n"
    "xor.b32 %r11, %r10, %r9; setp.gt.s32 %p2, %r11, -1; @%p2 bra L{n};\n"
)
POLL = (
    "L{n}: ld.acquire.gpu.global.u32 %r10, [%rd2];\nsetp.lt.u32 %p2, %r10, {goal}; @%p2 bra L{n};\n"
)


def everybody(*parts: str, number: int = 0) -> str:
    """What thread 0 of each CTA does between two barriers of its CTA."""
    body = "".join(parts).replace("{n}", str(number))
    return f"bar.sync 0;\n@%p0 bra OUT{number};\n{body}OUT{number}: bar.sync 0;\n"


def grid_sync(first: int = (1 << 31) - CTAS + 1, number: int = 0) -> str:
    return everybody(MASTER.replace("{first}", str(first)), DRAW, FLIPPED, number=number)


def waits(start: str, poll: str, goal: int = CTAS) -> str:
    return everybody(start, poll.replace("{goal}", str(goal)))


def run(body: str, *, cooperative: bool = True, start: int = 0, schedules: int = 0) -> Report:
    params = ".param .u64 x, .param .u64 c"
    text = f"{HEAD.format(params=params)}{START}{body}ret;\n}}\n"
    module = read(text, "k.ptx")
    values = Pointer("x", CTAS * 256), Pointer("c", 4, contents=Contents("u32", (start,)))
    launch = Launch("k", (CTAS, 1, 1), (64, 1, 1), cooperative=cooperative, params=values)
    return check(lower(module, module.entries[0], launch), schedules=schedules, budget=0)


def told(found: Report, body: str) -> set[str]:
    """The lines of the first finding's participants."""
    text = (START + body).splitlines()
    return {text[p.loc.line - FIRST] for p in found.findings[0].participants}


BACKOFF = (
    "ld.acquire.gpu.global.u32 %r10, [%rd2];\nsetp.ge.u32 %p3, %r10, {goal}; @%p3 bra OUT{n};\n"
    "mov.u32 %r12, 8;\nL{n}: nanosleep.u32 %r12; setp.lt.u32 %p4, %r12, 256; "
    "selp.u32 %r13, 1, 0, %p4; shl.b32 %r12, %r12, %r13;\n"
    "ld.acquire.gpu.global.u32 %r14, [%rd2];\nsetp.lt.u32 %p2, %r14, {goal}; @%p2 bra L{n};\n"
)
SWAP = (
    "L{n}: mov.u32 %r12, {goal}; atom.relaxed.gpu.global.cas.b32 %r10, [%rd2], %r12, {goal};\n"
    "setp.ne.u32 %p2, %r10, {goal}; @%p2 bra L{n};\n"
)
ADD_NOTHING = (
    "L{n}: atom.relaxed.gpu.global.add.u32 %r10, [%rd2], 0;\n"
    "setp.lt.s32 %p2, %r10, {goal}; @%p2 bra L{n};\n"
)
VOLATILE = "L{n}: ld.volatile.global.u32 %r10, [%rd2];\nsub.u32 %r11, {goal}, %r10; " \
    "setp.ne.u32 %p2, %r11, 0; @%p2 bra L{n};\n"  # fmt: skip

RIGHT = {
    "grid sync": grid_sync(),
    "grid sync, three times": "".join(
        STORE + grid_sync(number=2 * r) + LOAD + grid_sync(number=2 * r + 1) for r in range(3)
    ),
    "count": waits(ADD, POLL),
    "count, with fences": waits(FENCE + ADD.replace("release", "relaxed"), VOLATILE + FENCE),
    "count, sleeping": waits(ADD, BACKOFF),
    "count, by swapping": waits(FENCE + ADD, SWAP + FENCE),
    "count, by adding nothing": waits(FENCE + ADD, ADD_NOTHING + FENCE),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_barrier_of_the_grid_is_proved(name: str) -> None:
    assert run(STORE + RIGHT[name] + LOAD).verdict == "proved"


def test_whichever_half_of_the_numbers_a_grid_sync_begins_in() -> None:
    assert run(STORE + grid_sync() + LOAD, start=1 << 31).verdict == "proved"
    assert run(STORE + grid_sync() + LOAD, start=(1 << 31) - 1).verdict != "proved"


WRONG = {
    "the wait acquires nothing": grid_sync().replace("ld.acquire", "ld.relaxed"),
    "the arrival releases nothing": grid_sync().replace("add.release", "add.relaxed"),
    "no barrier of the CTA before": grid_sync().removeprefix("bar.sync 0;\n"),
    "one too few": waits(ADD, POLL, CTAS - 1),
    "one too few, sleeping": waits(ADD, BACKOFF, CTAS - 1),
    "released too late": waits(ADD.replace("release", "relaxed") + FENCE, POLL),
    "no fence after swapping": waits(FENCE + ADD, SWAP),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_barrier_of_the_grid_that_orders_nothing(name: str) -> None:
    found = run(STORE + WRONG[name] + LOAD, schedules=8)
    assert found.rules == {"race"}
    assert told(found, STORE + WRONG[name] + LOAD) == {STORE.strip(), LOAD.strip()}


ENDLESS = {
    "one too many": grid_sync((1 << 31) - CTAS),
    "a bit that is never reached": grid_sync((1 << 31) - CTAS + 2).replace("-1", "-2"),
    "count, one too many": waits(ADD, POLL, CTAS + 1),
}


@pytest.mark.parametrize("name", ["one too many", "count, one too many"])
def test_a_barrier_of_the_grid_that_waits_for_ever(name: str) -> None:
    found = run(STORE + ENDLESS[name] + LOAD)
    assert found.rules == {"deadlock"}
    assert any("setp" in line for line in told(found, STORE + ENDLESS[name] + LOAD))


@pytest.mark.parametrize("name", RIGHT)
def test_ctas_that_need_not_run_together(name: str) -> None:
    assert run(STORE + RIGHT[name] + LOAD, cooperative=False).rules == {"deadlock"}


def test_a_word_that_decides_more_than_its_wait_is_not_certified() -> None:
    """Who waits for the bit, and then looks how far the others are."""
    poll = FLIPPED + "setp.gt.u32 %p5, %r10, 2147483648; @%p5 st.global.u32 [%rd1], 7;\n"
    body = everybody(MASTER.replace("{first}", str((1 << 31) - CTAS + 1)), DRAW, poll)
    assert run(STORE + body + LOAD).verdict != "proved"


def test_a_wait_that_others_need_not_wait_for_may_miss_its_value() -> None:
    """Everybody counts twice; who waits for just the first sum may look too late."""
    equal = POLL.replace("setp.lt", "setp.ne")
    once = everybody(ADD, equal.replace("{goal}", str(CTAS)))
    assert run(STORE + once + LOAD).verdict == "proved"
    twice = everybody(ADD, equal.replace("{goal}", str(CTAS)), ADD)
    assert run(STORE + twice + LOAD).verdict != "proved"


#: CTA 0 stores for the others, and exchanges the word; these poll
TELLS = (
    f"setp.ne.u32 %p3, %r0, 0; @%p3 bra READ;\n{STORE}bar.sync 0;\n@%p0 bra END;\n"
    "{fence}atom.global.exch.b32 %r9, [%rd2], 1;\nbra.uni END;\nREAD: @%p0 bra BEHIND;\n"
    "{poll}BEHIND: bar.sync 0;\nmul.wide.u32 %rd7, %r1, 4; add.u64 %rd8, %rd1, %rd7;\n"
    "ld.global.u32 %r7, [%rd8];\nEND:\n"
)
KEEPS = (
    "L: atom.global.cas.b32 %r10, [%rd2], 1, 1;\nsetp.ne.u32 %p2, %r10, 1; @%p2 bra L;\n"
    "fence.acq_rel.gpu;\n"
)
ACQUIRES = "L: ld.acquire.gpu.global.u32 %r10, [%rd2];\nsetp.eq.u32 %p2, %r10, 0; @%p2 bra L;\n"
NOTHING = KEEPS.replace("cas.b32 %r10, [%rd2], 1, 1", "or.b32 %r10, [%rd2], 0")


def tells(poll: str, fence: str = FENCE) -> str:
    return TELLS.format(poll=poll, fence=fence)


@pytest.mark.parametrize("poll", [KEEPS, ACQUIRES, NOTHING], ids=["cas", "ld", "or"])
def test_a_word_that_is_exchanged_is_one_that_is_stored(poll: str) -> None:
    """As ``atomicExch(flag, 1)`` tells: nobody looks at what was there."""
    assert run(tells(poll)).verdict == "proved"
    wrong = tells(poll, fence="")
    found = run(wrong)
    assert found.rules == {"race"}
    assert told(found, wrong) == {STORE.strip(), "ld.global.u32 %r7, [%rd8];"}


def test_an_exchange_hands_on_what_was_released_before() -> None:
    """Thread 0 releases with the first store, and exchanges with nothing in between; a store by the
    same thread is a release pattern with the first one (H3)."""
    body = tells(ACQUIRES, fence="st.release.gpu.global.u32 [%rd2], 1;\n")
    wants = body.replace("exch.b32 %r9, [%rd2], 1", "exch.b32 %r9, [%rd2], 2").replace(
        "setp.eq.u32 %p2, %r10, 0", "setp.lt.u32 %p2, %r10, 2"
    )
    store = "st.relaxed.gpu.global.u32 [%rd2], 2"
    stored = wants.replace("atom.global.exch.b32 %r9, [%rd2], 2", store)
    for body in (wants, stored):
        assert run(body).verdict == "proved"
        assert run(body.replace("st.release", "st.relaxed")).rules == {"race"}


def test_an_exchange_whose_result_decides_draws() -> None:
    """Who finds 0 goes on: that is up to the schedule."""
    body = tells(ACQUIRES).replace("bra.uni END;", "setp.eq.u32 %p4, %r9, 0; @%p4 bra END;")
    assert run(body).verdict != "proved"
