"""What docs/trust.md says is not covered: for each item of its list a program of which the kernel
says so, and the nearest one that it certifies.

So nothing of this is certified by accident. Programs without such a twin are litmus programs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import tilesim as ts
from tests.kernel.programs import taken_over
from tests.litmus.notation import begin, global_words, thread, words
from tests.litmus.sections import all_rows
from tilesim import Builder, address_of, pred, s32, u32, u64, view_at
from tilesim.checker import check
from tilesim.checker.certificates import FORM
from tilesim.ir import effects as fx
from tilesim.ir.loc import caller
from tilesim.ir.ops.cp_async import CpAsync
from tilesim.proof.certificate import Repetition
from tilesim.proof.check import certify
from tilesim.proof.effects import EXECUTORS, SILENT
from tilesim.proof.forms import family
from tilesim.proof.rules import Answer
from tilesim.transforms.lower import lower

TRUST = Path(__file__).resolve().parents[2] / "docs" / "trust.md"
Program = Callable[[Builder, bool], None]

#: by the row of the page, programs, of which the second argument says whether they are covered
PROGRAMS: dict[str, list[Program]] = {}
#: by the row of the page, litmus programs
LITMUS = {
    "stores through tensor maps by im2col": ("LB21", "LB29-store"),
    "tensor maps that are in memory": ("LB17",),
    "fences for tensor maps": ("LB30", "LB30-tiled", "LB17-acquired"),
    "requests to launch control behind one that has failed":
        ("LD11-before", "LD11", "LD11-two-ordered"),
    "allocations of tensor memory that may wait": ("LG02-never",),
    "memory of several devices": ("LW10", "LW11", "LM09"),
    "local memory of threads": ("LW16",),
    "bytes of a bulk copy that are not read": ("LB28-steers", "LB28-dynamic"),
    "`discard`": ("LV24",),
    "`st.async` and `red.async` to global memory": ("LS02-add-waits", "LS01-late"),
    "`mbarrier.pending_count`": ("LM05",),
    "registers that are given back after others are taken": ("LE11",),
}  # fmt: skip

#: rows of the page that have a test of their own below, or, of the level `ptx`, pairs
ELSEWHERE = {
    "loops that take more than 3,000,000 instructions of warps, without those left out",
    "at `ptx`, what may depend on which lane `elect.sync` chooses",
    "at `ptx`, an `elect.sync` of some lanes of a warp",
    "values of a parameter of PTX, of several parameters, without a last one, or that are refused",
    "every value of a parameter: launch control, addresses in global memory",
    "stores to constant memory",
    "`wmma.store`",  # tests/ptx/test_plain.py
}


#: by what is not covered, what the kernel says
_SAID = (
    (
        "loops that take more than 3,000,000 instructions of warps, without those left out",
        "executed instructions",
    ),
    (
        "values of a parameter of PTX, of several parameters, without a last one, "
        "or that are refused",
        "values of PTX",
    ),
    (
        "every value of a parameter: launch control, addresses in global memory",
        "for every value of a parameter",
    ),
    (
        "polls of mbarriers that decide more than whether the same wait follows",
        "an mbarrier that is polled decides",
    ),
    ("polls of mbarriers by tokens", "polled by a token"),
    (
        "words that are waited for and whose value is unknown",
        "what it holds is not known",
    ),
    (
        "words in global memory that are waited for, of clusters that are "
        "not executed together, "
        "or with restricted fences",
        "is waited for that others may change",
    ),
    ("waits for words that pass, or miss their value, if changes come in another order", "a wait"),
    ("locks, branches on data behind which threads synchronise", "data decides the branch"),
    (
        "words that others may write at any time and on which something depends",
        "where what is found decides",
    ),
    ("other addresses that data decides, tickets", "data decides an address"),
    ("decisions by the address of a tensor or of shared memory", "an address decides"),
    (
        "addresses that are numbers, or computed from that of another tensor",
        "which is not made of",
    ),
    ("mbarriers, counts, bytes and phases that data decides", "data decides"),
    ("requests to launch control behind one that has failed", "behind one that has failed"),
    ("requests to launch control by several lanes at once", "several lanes ask"),
    ("launch control of clusters that do not all do the same", "differs in"),
    (
        "strong accesses of global memory where launch control hands out clusters",
        "a strong access where launch control",
    ),
    ("unordered stores to one place of data with different value numbers", "equal values"),
    ("allocations of tensor memory that may wait", "allocations of tensor memory"),
    ("stores through tensor maps by im2col", "a tensor map of mode"),
    ("tensor maps that are in memory", "the proxy of tensor maps"),
    ("fences for tensor maps", "fence.proxy.tensormap"),
    ("bytes of a bulk copy that are not read", "bytes that are not read"),
    ("`st.async` and `red.async` to global memory", "an access by a thread of its own"),
    ("`discard`", "bytes that hold nothing"),
    ("`wmma.store`", "any lane may store any element"),
    ("memory of several devices", "memory of other devices"),
    ("local memory of threads", "private"),
    ("what an earlier grid has left, `griddepcontrol`", "an earlier grid"),
    ("stores to constant memory", "constant memory at which"),
    ("`mbarrier.pending_count`", "PendingCount"),
    ("shuffles of a lane that data decides", "data decides of which lane"),
    ("shuffles of registers that the lane asked has not set", "which nothing has set"),
    ("member masks that name lanes that have ended", "member mask"),
    ("a warp that joins a named barrier twice in a round", "joins twice in a round"),
    (
        "lanes of one member mask, or of one barrier, that meet at different instructions",
        "lanes of a warp that may meet at several instructions",
    ),
    (
        "lanes that copy one piece to one place by `cp.async`",
        "lanes that copy one piece to one place",
    ),
    (
        "named barriers that differ between the lanes of a warp",
        "lanes at several named barriers",
    ),
    (
        "a warp that changes its registers twice where not all can have the most at once",
        "changes its registers twice",
    ),
    ("registers that are given back after others are taken", "registers that are given back"),
    ("clusters of more than 3,072 threads", "threads in a cluster"),
    (
        "at `ptx`, what may depend on which lane `elect.sync` chooses",
        "depend on which lane is elected",
    ),
    ("at `ptx`, an `elect.sync` of some lanes of a warp", "some lanes of a warp elect one"),
)
SAYS = dict(_SAID)


def listed() -> list[str]:
    """What is not covered, as the page has it."""
    text = TRUST.read_text()
    begins = text.index("Not covered yet")
    return re.findall(
        r"^\* (.+)$", text[begins : text.index("\n\n", text.index("* ", begins))], re.M
    )


def lacking(name: str) -> Callable[[Program], Program]:
    """Decorator: the program is of that row of the page."""

    def enter(program: Program) -> Program:
        PROGRAMS.setdefault(name, []).append(program)
        return program

    return enter


def answer(program: Program, *, covered: bool) -> Answer:
    """What the kernel says of it."""
    k = Builder(program.__name__)
    program(k, covered)
    return certify(lower(k.finish()))


def _asks(k: Builder, covered: bool, asks: str) -> None:
    """A thread asks whether another one has arrived, and stores, or waits, if it has not."""
    k.launch(warps=2)
    full, done = k.mbarriers("full"), k.var("done", 0, pred)
    word = global_words(k, "word")
    begin(k, (full, 1))
    with thread(k, 1):
        k.mbarrier.arrive(full)
    with thread(k, 0):
        if asks == "test":
            k.mbarrier.test_wait(done, full, 0)
        else:
            k.mbarrier.try_wait(done, full, 0)
        with k.if_(done.eq(0)):
            if covered:
                k.mbarrier.wait(full, 0)
            else:
                k.mem.store(word[0], 1)


@lacking("lanes of one member mask, or of one barrier, that meet at different instructions")
def meets_in_two_arms(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    x, r = words(k, "x", 32), k.var("r")
    k.mem.store(x[k.lane_id], 1)
    if covered:
        k.sync_warp()
    with k.if_(k.lane_id < 16):
        if not covered:
            k.sync_warp()
        k.mem.load(r, x[31 - k.lane_id])
    with k.else_():
        if not covered:
            k.sync_warp()
        k.mem.load(r, x[31 - k.lane_id])


@lacking("lanes that copy one piece to one place by `cp.async`")
def copies_of_which_one_is_waited_for(k: Builder, covered: bool) -> None:
    """As in PTX: the second lane copies, too, and its copy is under way when the word is stored."""
    k.launch(warps=1)
    x, g = words(k, "x", 4), global_words(k, "g", 4)
    with k.if_(k.lane_id < (1 if covered else 2)):
        k.emit(CpAsync(dst=x[...], src=g[...], shared_out=False, loc=caller()))
    with k.if_(k.lane_id.eq(0)):
        k.cp_async.wait_all()
        k.mem.store(x[0], 7)


@lacking("lanes of one member mask, or of one barrier, that meet at different instructions")
def joins_in_two_arms(k: Builder, covered: bool) -> None:
    k.launch(warps=2)
    if covered:
        k.bar.sync(1, 64, aligned=False)
    else:
        _in_two_arms(k, lambda: k.bar.sync(1, 64, aligned=False))


@lacking("lanes of one member mask, or of one barrier, that meet at different instructions")
def arrives_at_the_cluster_in_two_arms(k: Builder, covered: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    if covered:
        k.cluster.arrive(aligned=False)
    else:
        _in_two_arms(k, lambda: k.cluster.arrive(aligned=False))
    k.cluster.wait()


def _in_two_arms(k: Builder, act: Callable[[], None]) -> None:
    with k.if_(k.lane_id < 16):
        act()
    with k.else_():
        act()


@lacking("addresses that are numbers, or computed from that of another tensor")
def a_store_at_a_number(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    place = address_of(words(k, "x", 4))
    with k.elected():
        k.mem.store(view_at(k.var("p", place + 8 if covered else 8, u32), s32), 1)


@lacking("decisions by the address of a tensor or of shared memory")
def a_branch_on_an_address(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    g = global_words(k, "g", 4)
    with k.if_((address_of(g[3]) - address_of(g) if covered else address_of(g)) > 8):
        k.sync_warp()


@lacking("polls of mbarriers that decide more than whether the same wait follows")
def a_test_that_decides(k: Builder, covered: bool) -> None:
    _asks(k, covered, "test")


@lacking("polls of mbarriers that decide more than whether the same wait follows")
def a_try_that_decides(k: Builder, covered: bool) -> None:
    _asks(k, covered, "try")


@lacking("polls of mbarriers that decide more than whether the same wait follows")
def a_wait_if_a_poll_has_answered_yes(k: Builder, covered: bool) -> None:
    k.launch(warps=2)
    full, done = k.mbarriers("full"), k.var("done", 0, pred)
    begin(k, (full, 1))
    with thread(k, 1):
        k.mbarrier.arrive(full)
    with thread(k, 0):
        k.mbarrier.try_wait(done, full, 0)
        with k.if_(done.eq(0) if covered else done.eq(1)):
            k.mbarrier.wait(full, 0)


@lacking("polls of mbarriers by tokens")
def a_poll_by_a_token(k: Builder, covered: bool) -> None:
    k.launch(warps=2)
    full, done, token = k.mbarriers("full"), k.var("done", 0, pred), k.var("token", dtype=u64)
    begin(k, (full, 2))
    with thread(k, 1):
        k.mbarrier.arrive(full)
    with thread(k, 0):
        k.mbarrier.arrive(full, token=token)
        if covered:
            k.mbarrier.wait(full, token=token)
        else:
            k.mbarrier.try_wait(done, full, token=token)


@lacking("words that are waited for and whose value is unknown")
def a_flag(k: Builder, covered: bool) -> None:
    k.launch(warps=2)
    flag, seen = (words if covered else global_words)(k, "flag"), k.var("seen", 0)
    begin(k, zero=[flag] if covered else ())
    with thread(k, 0):
        k.mem.store(flag[0], 1, sem="release", scope="gpu")
    with thread(k, 1), k.while_(seen.eq(0)):
        k.mem.load(seen, flag[0], sem="acquire", scope="gpu")


@lacking(
    "words in global memory that are waited for, of clusters that are "
    "not executed together, "
    "or with restricted fences"
)
def a_word_of_several_clusters(k: Builder, covered: bool) -> None:
    k.launch(warps=1, grid=2)
    count, seen = (words if covered else global_words)(k, "count"), k.var("seen", 0)
    begin(k, zero=[count] if covered else ())
    k.mem.atomic(count[0], "add", 1, sem="release", scope="gpu")
    with k.elected(), k.while_(seen < 32):
        k.mem.load(seen, count[0], sem="acquire", scope="gpu")


@lacking("waits for words that pass, or miss their value, if changes come in another order")
def a_word_that_counts(k: Builder, covered: bool) -> None:
    k.launch(warps=2)
    count, seen = words(k, "count"), k.var("seen", 0)
    begin(k, zero=[count])
    k.mem.atomic(count[0], "add", 1, sem="release")
    with thread(k, 1), k.while_(seen < 64 if covered else seen < 63):
        k.mem.load(seen, count[0], sem="acquire")


@lacking("locks, branches on data behind which threads synchronise")
def a_lock(k: Builder, covered: bool) -> None:
    k.launch(warps=2)
    lock, x, old = global_words(k, "lock"), global_words(k, "x", 2), k.var("old", 1)
    with k.elected():
        if not covered:
            with k.while_(old.ne(0)):
                k.mem.atomic(lock[0], "cas", 1, compare=0, result=old, sem="acquire")
        k.mem.store(x[k.warp_id if covered else 0], 1)
        if not covered:
            k.mem.store(lock[0], 0, sem="release", scope="gpu")


@lacking("locks, branches on data behind which threads synchronise")
def a_branch_on_data(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    g, x = global_words(k, "g"), k.var("x")
    with k.elected():
        k.mem.load(x, g[0])
        with k.if_((k.warp_id if covered else x).eq(0)):
            k.fence.proxy_async()


@lacking("locks, branches on data behind which threads synchronise")
def a_branch_on_the_answer_of_an_atomic(k: Builder, covered: bool) -> None:
    k.launch(warps=2)
    g, old = global_words(k, "g"), k.var("old")
    with k.elected():
        k.mem.atomic(g[0], "add", 1, result=old)
        with k.if_((k.warp_id if covered else old).eq(1)):
            k.fence.proxy_async()


@lacking("other addresses that data decides, tickets")
def a_ticket(k: Builder, covered: bool) -> None:
    k.launch(warps=2)
    g, out, ticket = global_words(k, "g"), global_words(k, "out", 2), k.var("ticket")
    with k.elected():
        k.mem.atomic(g[0], "add", 1, result=ticket)
        k.mem.store(out[k.warp_id if covered else ticket], 1)


@lacking("other addresses that data decides, tickets")
def an_index_that_is_loaded(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    g, out, at = global_words(k, "g"), global_words(k, "out", 2), k.var("at")
    with k.elected():
        k.mem.load(at, g[0])
        k.mem.store(out[0 if covered else at & 1], 1)


@lacking("mbarriers, counts, bytes and phases that data decides")
def an_mbarrier_that_is_loaded(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    g, at, b = global_words(k, "g"), k.var("at"), k.mbarriers("b", 2)
    with thread(k, 0):
        for n in range(2):
            k.mbarrier.init(b[n], 1)
        k.mem.load(at, g[0])
        k.mbarrier.arrive(b[0 if covered else at & 1])


@lacking("mbarriers, counts, bytes and phases that data decides")
def a_phase_that_is_loaded(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    g, phase, b = global_words(k, "g"), k.var("phase"), k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mem.load(phase, g[0])
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0 if covered else phase & 1)


@lacking("mbarriers, counts, bytes and phases that data decides")
def a_count_that_is_loaded(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    g, count, b = global_words(k, "g"), k.var("count"), k.mbarriers("b")
    begin(k, (b, 2))
    with thread(k, 0):
        k.mem.load(count, g[0])
        k.mbarrier.arrive(b, 1 if covered else (count & 1) + 1)


@lacking("words that others may write at any time and on which something depends")
def a_look_at_what_another_warp_stores(k: Builder, covered: bool) -> None:
    k.launch(warps=2)
    word, out, seen = words(k, "word"), global_words(k, "out"), k.var("seen", 0)
    begin(k, zero=[word])
    with thread(k, 1):
        k.mem.load(seen, word[0], sem="acquire")
        with k.if_(seen.eq(0)):
            k.mem.store(out[0], 1)
    if covered:
        k.sync_threads()
    with thread(k, 0):
        k.mem.store(word[0], 1, sem="release")


@lacking("unordered stores to one place of data with different value numbers")
def lanes_that_load_one_value_by_two_instructions(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    g, s, x = global_words(k, "g"), words(k, "s"), k.var("x")
    k.mem.load(x, g[0])
    if not covered:
        with k.if_(k.lane_id < 16):
            k.mem.load(x, g[0])
    k.mem.store(s[0], x)


@lacking("unordered stores to one place of data with different value numbers")
def warps_that_store_one_value_to_global_memory(k: Builder, covered: bool) -> None:
    k.launch(warps=2)
    g, out, x = global_words(k, "g"), global_words(k, "out"), k.var("x")
    k.mem.load(x, g[0])
    with k.if_(k.warp_id < (1 if covered else 2)):
        k.mem.store(out[0], x)


@lacking("what an earlier grid has left, `griddepcontrol`")
def a_tensor_of_an_earlier_grid(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    g, x = k.tensor("g", s32, (1,), dependent=not covered), k.var("x")
    if not covered:
        k.griddep.wait()
    with k.elected():
        k.mem.load(x, g[0])


@lacking("shuffles of a lane that data decides")
def a_shuffle_from_a_lane_that_is_loaded(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    g, at, x = global_words(k, "g", 32), k.var("at"), k.var("x")
    k.mem.load(at, g[k.lane_id])
    with k.if_(k.lane_id < 16):
        k.mem.shuffle(x, at, 0 if covered else at & 7)


@lacking("shuffles of registers that the lane asked has not set")
def a_sum_of_what_one_lane_has_loaded(k: Builder, covered: bool) -> None:
    """As Triton 3.6 adds over warps; what the others get of it is not used."""
    k.launch(warps=1)
    g, x, late, other = global_words(k, "g", 32), words(k, "x", 32), k.var("late"), k.var("other")
    if covered:
        k.assign(late, 0)
    with k.if_(k.lane_id.eq(0)):
        k.mem.load(late, g[0])
    k.mem.shuffle(other, late, 1, "bfly")
    total = k.var("total", late + other)
    with k.if_(k.lane_id < 2):
        k.mem.store(x[k.lane_id], total if covered else 0)


@lacking("member masks that name lanes that have ended")
def lanes_that_have_ended(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    with k.if_(k.lane_id >= 16):
        k.exit()
    k.sync_warp(0xFFFF if covered else 0xFFFFFFFF)


@lacking("a warp that joins a named barrier twice in a round")
def two_joins_in_a_round(k: Builder, covered: bool) -> None:
    k.launch(warps=2)
    with k.role("T0", 0):
        k.bar.arrive(1, 64, aligned=False)
        if not covered:
            k.bar.arrive(1, 64, aligned=False)
    with k.role("T1", 1):
        if covered:
            k.bar.sync(1, 64, aligned=False)


@lacking("named barriers that differ between the lanes of a warp")
def lanes_at_two_named_barriers(k: Builder, covered: bool) -> None:
    k.launch(warps=1)
    k.bar.sync(1 if covered else 1 + k.lane_id // 16, 32, aligned=False)


@lacking("a warp that changes its registers twice where not all can have the most at once")
def registers_that_are_given_and_taken_again(k: Builder, covered: bool) -> None:
    k.launch(warps=8, registers=128)
    with k.role("WG0", range(4)):
        k.setmaxnreg("dec", 64)
        k.bar.sync(1, 128)
        k.setmaxnreg("inc", 64 if covered else 72)
    with k.role("WG1", range(4, 8)):
        k.setmaxnreg("inc", 192 if covered else 184)


@lacking("requests to launch control by several lanes at once")
def a_request_by_each_lane(k: Builder, covered: bool) -> None:
    k.launch(warps=1, grid=2, target="sm_100a")
    response, b = k.shared("response", u32, (32, 4)), k.mbarriers("b")
    begin(k, (b, 1))
    with k.elected():
        k.mbarrier.arrive_expect_tx(b, 16 if covered else 32)
    with k.if_(k.lane_id < (1 if covered else 2)):
        k.clc.try_cancel(response[k.lane_id], b)
    k.mbarrier.wait(b, 0)


@lacking("launch control of clusters that do not all do the same")
def one_cluster_that_does_more(k: Builder, covered: bool) -> None:
    with taken_over(k) as taken, k.if_(taken.tile < (9 if covered else 3)):
        k.sync_warp(1)


@lacking("strong accesses of global memory where launch control hands out clusters")
def an_atomic_for_each_cluster(k: Builder, covered: bool) -> None:
    g = global_words(k, "g", 8)
    with taken_over(k) as taken:
        k.mem.store(g[taken.tile], 1)
        if not covered:
            k.mem.atomic(g[taken.tile], "add", 1)


@lacking("clusters of more than 3,072 threads")
def a_large_cluster(k: Builder, covered: bool) -> None:
    ctas = 3 if covered else 4
    k.launch(warps=32, grid=ctas, cluster=ctas)
    with k.if_(k.thread_id.eq(0)):
        k.fence.proxy_async()


def test_the_programs_are_those_of_the_page() -> None:
    assert listed() == [*SAYS]
    assert sorted({*PROGRAMS, *LITMUS}) == sorted({*SAYS} - ELSEWHERE)


@pytest.mark.parametrize(
    ("name", "program"), [(n, p) for n, some in PROGRAMS.items() for p in some],
    ids=[p.__name__ for some in PROGRAMS.values() for p in some],
)  # fmt: skip
def test_what_is_not_covered_is_not_certified(name: str, program: Program) -> None:
    found = answer(program, covered=False)
    assert found.verdict == "not covered"
    assert SAYS[name].strip("`") in found.what
    assert str(answer(program, covered=True)) == "certified"


@pytest.mark.parametrize(
    ("name", "row"), [(n, row) for n, rows in LITMUS.items() for row in rows],
    ids=[row for rows in LITMUS.values() for row in rows],
)  # fmt: skip
def test_litmus_programs_that_are_not_covered(name: str, row: str) -> None:
    program = next(one for one in all_rows() if one.id == row)
    found = certify(lower(program.build()))
    assert found.verdict == "not covered"
    assert SAYS[name].strip("`") in found.what


def test_every_kind_of_effect_is_executed_or_not_covered() -> None:
    """What is neither has to be named here, so that no new kind is passed over."""
    kinds = set(get_args(fx.Effect))
    apart = {fx.Waits, fx.FencesFragments}  # `effects.execute` and `_by_warpgroup` have them
    assert kinds - EXECUTORS.keys() - set(SILENT) - apart == {
        fx.AcquiresMap, fx.PendingCount, fx.ReleasesMaps, fx.WaitsGrids,
    }  # fmt: skip
    assert set(SILENT) == {
        fx.Gathers, fx.GathersWarps, fx.Issues, fx.Shuffles,
    }  # fmt: skip


def test_long_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a certificate nothing that repeats is left out: a loop costs its length."""
    k = Builder("long")
    k.launch(warps=1)
    with k.loop(40):
        k.sync_warp()
    mir = lower(k.finish())
    assert str(certify(mir)) == "certified"
    monkeypatch.setattr("tilesim.proof.machine.MOST_STEPS", 40)
    assert certify(mir).what == "more than 40 executed instructions"


@pytest.mark.parametrize("written", [False, True])
def test_constant_memory(written: bool) -> None:
    k = Builder("constant")
    k.launch(warps=1)
    g, x = global_words(k, "g"), k.var("x")
    with k.elected():
        k.mem.load(x, g[0])
        if written:
            k.mem.store(g[0], x)
    mir = lower(k.finish())
    assert str(certify(mir)) == "certified"
    constant = replace(mir.kernel, params=(replace(g, constant=True),))
    found = certify(replace(mir, kernel=constant))
    assert found.verdict == ("not covered" if written else "certified")
    assert (SAYS["stores to constant memory"] in found.what) == written


@ts.kernel
def rounds(k: Builder, *, n: int = 3, m: int = 1) -> None:
    k.launch(warps=m)
    with k.loop(n):
        k.sync_warp()


def test_every_value() -> None:
    """Of one parameter, up to the last value that is proved."""
    every = check(rounds, certificate=True, for_all={"n": "1..30"})
    assert (every.verdict, str(every.rechecked)) == ("proved", "certified")
    assert every.certificate is not None
    assert str(every.certificate.every) == "n in 1..30"
    assert every.recheck_trusts == FORM
    several = check(rounds, certificate=True, for_all={"n": "1..3", "m": "1..3"})
    assert several.rechecked is not None
    assert several.certificate is not None
    assert several.certificate.every is None
    what = "every n in 1..3, every m in 1..3: values of PTX, of several parameters"
    assert several.rechecked.what.startswith(what)


@pytest.mark.parametrize("of_ptx", [False, True])
def test_every_value_at_an_address(of_ptx: bool) -> None:
    """Where a store goes is not known as a number of a parameter if it is computed."""

    @ts.kernel
    def stores(k: Builder, *, n: int = 3) -> None:
        k.launch(warps=1)
        out = k.tensor("out", s32, (1 << 20, 32))
        with k.loop(n) as i:
            if of_ptx:
                k.mem.store(
                    ts.view_at(
                        address_of(out[0, 0]) + 128 * i + 4 * k.lane_id, s32, space="global"
                    ),
                    1,
                )
            else:
                k.mem.store(out[i, k.lane_id], 1)

    first, second, last = (lower(stores.build(n=n)) for n in (20, 24, 820))
    left_out = [[Repetition(4, 1, 4)]]
    answer = certify(first, None, left_out, of_all=family((first, second, last), 200))
    assert (answer.verdict == "certified") is not of_ptx
    assert ("for every value of a parameter" in answer.what) is of_ptx
