"""A token belongs to a barrier and to one of its lives; nothing else is a token (A19, A20)."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, u64
from tilesim.checker import check
from tilesim.dsl.kernel import Kernel
from tilesim.ir.program import Strict
from tilesim.ir.registers import token_variables

LEVELS: tuple[Strict, ...] = ("practice", "ptx")


@kernel(warps=1)
def two_barriers(k: Builder, *, token_of: int = 0, form: str = "arrive") -> None:
    """The arrivals return tokens of both barriers; one of them is waited with."""
    b = k.mbarriers("b", 2)
    t, other, done = k.var("t"), k.var("other"), k.var("done")
    with k.role("T0", 0), k.elected():
        k.mbarrier.init(b[0], 1)
        k.mbarrier.init(b[1], 1)
        if form == "arrive":
            k.mbarrier.arrive(b[0], token=t)
            k.mbarrier.arrive(b[1], token=other)
        elif form == "drop":
            k.mbarrier.arrive_drop(b[0], token=t)
            k.mbarrier.arrive_drop(b[1], token=other)
        else:
            k.mbarrier.arrive_expect_tx(b[0], 0, token=t)
            k.mbarrier.arrive_expect_tx(b[1], 0, token=other)
        if form == "drop":
            k.mbarrier.try_wait(done, b[0], token=(t, other)[token_of])
        else:
            k.mbarrier.wait(b[0], token=(t, other)[token_of])


ARRIVALS = {
    "arrive": "k.mbarrier.arrive(b[1]",
    "drop": "k.mbarrier.arrive_drop(b[1]",
    "expect": "k.mbarrier.arrive_expect_tx(b[1]",
}


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize("form", ARRIVALS)
def test_token_of_another_barrier(form: str, strict: Strict) -> None:
    report = check(two_barriers.build(token_of=1, form=form), strict=strict)
    assert report.verdict == "failed"
    finding = found(report, "phase-alias")
    assert "with a token of b[1]" in finding.message
    wait = "k.mbarrier.try_wait(" if form == "drop" else "k.mbarrier.wait("
    assert sites(finding) == {
        ("T0", at(two_barriers, wait)),
        ("T0", at(two_barriers, ARRIVALS[form])),
    }
    assert check(two_barriers.build(form=form), strict=strict).verdict == "proved"


@kernel(warps=1)
def two_lives(k: Builder, *, again: bool = False) -> None:
    """A token of the barrier's first life, in its second one, where its phase would do."""
    b, t = k.mbarriers("b"), k.var("t")
    with k.role("T0", 0), k.elected():
        k.mbarrier.init(b, 1)
        k.mbarrier.arrive(b, token=t)  # first life
        k.mbarrier.wait(b, token=t)
        k.mbarrier.inval(b)
        k.mbarrier.init(b, 1)
        if again:
            k.mbarrier.arrive(b, token=t)
        else:
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, token=t)  # second life


def test_token_of_an_earlier_life() -> None:
    report = check(two_lives.build())
    assert report.verdict == "failed"
    finding = found(report, "phase-alias")
    assert "before its mbarrier.inval" in finding.message
    assert sites(finding) == {
        ("T0", at(two_lives, "# second life")),
        ("T0", at(two_lives, "# first life")),
    }
    assert check(two_lives.build(again=True)).verdict == "proved"


@kernel(warps=1)
def made_up(k: Builder, *, how: str = "as it is") -> None:
    """A number that stands for no phase."""
    b, t, copy = k.mbarriers("b"), k.var("t"), k.var("copy")
    with k.role("T0", 0), k.elected():
        k.mbarrier.init(b, 1)
        k.mbarrier.arrive(b, token=t)
        value = {
            "constant": t * 0,
            "next": t + 1,
            "bits": t ^ 1,
            "copy": copy,
            "there and back": t + 1 - 1,
            "as it is": t,
        }[how]
        k.assign(copy, t)
        k.mbarrier.wait(b, token=value)


@pytest.mark.parametrize("how", ["constant", "next", "bits"])
def test_arithmetic_on_a_token_is_none(how: str) -> None:
    report = check(made_up.build(how=how))
    assert report.verdict == "failed"
    finding = found(report, "phase-alias")
    assert "a number that no arrive has returned" in finding.message
    assert sites(finding) == {("T0", at(made_up, "k.mbarrier.wait("))}


@pytest.mark.parametrize("how", ["as it is", "copy", "there and back"])
def test_token_is_passed_on_in_registers(how: str) -> None:
    assert check(made_up.build(how=how)).verdict == "proved"


def test_copies_of_tokens_have_64_bits_in_emitted_code() -> None:
    assert token_variables(made_up.build()) == {"t", "copy"}


@kernel(warps=2)
def through_memory(k: Builder, *, ctas: int = 1, ready: int = 0) -> None:
    """Another warp waits with the token, of its own CTA's barrier or of the peer's."""
    k.launch(grid=ctas, cluster=ctas)
    b, handed = k.mbarriers("b"), k.shared("handed", u64, (1,))
    t, y = k.var("t"), k.var("y", dtype=u64)
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
    k.sync_threads()
    if ctas > 1:
        k.cluster.sync()
    with k.role("T0", 0), k.elected():
        k.mbarrier.arrive(b, token=t)
        k.mem.store(handed.at(1 - k.cluster_rank)[0] if ctas > 1 else handed[0], t)
    k.sync_threads()
    if ctas > 1:
        k.cluster.sync()
    with k.role("T1", 1), k.elected():
        k.mem.load(y, handed[0])
        k.mbarrier.wait(b, token=y)
    if ctas > 1:
        k.cluster.sync()


def test_token_is_passed_on_in_memory() -> None:
    assert check(through_memory.build()).verdict == "proved"


def test_token_of_the_same_barrier_of_another_cta() -> None:
    report = check(through_memory.build(ctas=2))
    assert report.verdict == "failed"
    finding = found(report, "phase-alias")
    assert sites(finding) == {
        ("T1", at(through_memory, "k.mbarrier.wait(b, token=y)")),
        ("T0", at(through_memory, "k.mbarrier.arrive(b, token=t)")),
    }


@kernel(warps=1)
def three_phases(k: Builder, *, count: int = 10) -> None:
    """With a count of 10, 32 lanes would end three phases; each waits for the one it arrived in."""
    b, t = k.mbarriers("b"), k.var("t")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, count)
    k.sync_threads()
    with k.role("W0", 0):
        k.mbarrier.arrive(b, token=t)
        k.mbarrier.wait(b, token=t)


def test_lanes_of_one_instruction_arrive_in_one_phase() -> None:
    """An H200 adds up their arrivals and traps (A32)."""
    report = check(three_phases.build())
    assert report.verdict == "failed", report
    finding = found(report, "over-arrival")
    assert sites(finding) == {("W0", at(three_phases, "k.mbarrier.arrive("))}
    assert check(three_phases.build(count=32)).verdict == "proved"


@kernel(warps=1)
def counted(k: Builder, *, token: str = "no_complete") -> None:
    """pending_count takes the token of a .noComplete arrive, of whichever barrier."""
    b, t, n = k.mbarriers("b"), k.var("t"), k.var("n")
    with k.role("T0", 0), k.elected():
        k.mbarrier.init(b, 3)
        k.mbarrier.arrive(b, token=t, no_complete=token != "plain")
        k.mbarrier.pending_count(n, t + 1 if token == "next" else t)


@pytest.mark.parametrize("token", ["plain", "next"])
def test_pending_count_of_something_else(token: str) -> None:
    report = check(counted.build(token=token))
    assert report.verdict == "failed"
    assert ("T0", at(counted, "k.mbarrier.pending_count")) in sites(found(report, "phase-alias"))


@pytest.mark.parametrize(
    "example", [two_barriers, two_lives, made_up, through_memory, counted], ids=lambda e: e.name
)
def test_examples_differ_in_their_tokens_only(example: Kernel) -> None:
    """None of them is wrong in another way at the stricter level."""
    report = check(example.build(), strict="ptx")
    assert report.rules <= {"phase-alias"}
