"""Pairs of programs that wait for words in memory, by threads of a CTA or of all clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tests.kernel.programs import cta, wrong
from tests.litmus.notation import begin, global_words, thread, words
from tilesim import Builder, ds, s32, u8, u16, u32
from tilesim.ir.declarations import Pointed, SharedTensor, View
from tilesim.ir.expr import Var

_Sem = Literal["relaxed", "acquire"]


def waits(k: Builder, seen: Var, word: View, number: int, sem: _Sem = "acquire") -> None:
    """A lane waits until a word holds a number or more."""
    k.assign(seen, -1)
    with k.while_(seen < number):
        k.mem.load(seen, word, sem=sem, scope="gpu")


def adds(k: Builder, word: View, amount: int = 1) -> None:
    """An addition that releases."""
    k.mem.atomic(word, "add", amount, sem="release", scope="gpu")


@wrong("counter-wait", not_covered="data decides the branch")
def a_loop_that_counts_how_often_it_looks(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    word, seen, looks = global_words(k, "word"), k.var("seen", 0), k.var("looks", 0)
    with thread(k, 0):
        adds(k, word[0])
    with thread(k, 1), k.while_(seen.eq(0)):
        k.mem.load(seen, word[0], sem="acquire", scope="gpu")
        if not right:
            k.assign(looks, looks + 1)


@wrong("counter-wait", not_covered="data decides the branch")
def a_branch_on_what_a_wait_has_found(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    word, seen = global_words(k, "word"), k.var("seen", 0)
    with thread(k, 0):
        adds(k, word[0])
    with thread(k, 1):
        waits(k, seen, word[0], 1)
        with k.if_((k.warp_id if right else seen).eq(1)):
            k.fence.proxy_async()


@wrong("counter-wait", not_covered="data decides the branch")
def a_loop_that_an_earlier_wait_may_spare(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    word, seen = global_words(k, "word"), k.var("seen", 0)
    with thread(k, 0):
        adds(k, word[0])
        adds(k, word[0])
    with thread(k, 1):
        waits(k, seen, word[0], 1)
        if right:
            k.assign(seen, 0)
        with k.while_(seen < 2):
            k.mem.load(seen, word[0], sem="acquire", scope="gpu")


def stores_and_adds(k: Builder, *, warps: int) -> tuple[SharedTensor, SharedTensor, Var]:
    """A thread of the first warp stores to a word, and adds to the next one; a register."""
    k.launch(warps=warps)
    x, word, seen = words(k, "x"), words(k, "word"), k.var("seen", 0)
    begin(k, zero=[word])
    with thread(k, 0):
        k.mem.store(x[0], 1)
        adds(k, word[0])
    return x, word, seen


@wrong("counter-wait", breaks="H6")
def data_behind_a_wait_that_acquires_nothing(k: Builder, *, right: bool) -> None:
    x, word, seen = stores_and_adds(k, warps=2)
    with thread(k, 1):
        waits(k, seen, word[0], 1, "relaxed")
        if right:
            k.fence.memory("acq_rel", "gpu")
        k.mem.load(seen, x[0])


@wrong("counter-wait", breaks="deadlock")
def a_word_that_is_reset_while_others_may_wait(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    word, seen = words(k, "word"), k.var("seen", 0)
    begin(k, zero=[word])
    with thread(k, 0):
        adds(k, word[0])
    with thread(k, 1):
        waits(k, seen, word[0], 1)
    if right:
        k.sync_threads()
    with thread(k, 0):
        k.mem.store(word[0], 0)
    k.sync_threads()
    with thread(k, 1):
        adds(k, word[0])
    with thread(k, 0):
        waits(k, seen, word[0], 1)


@wrong("counter-wait", breaks="deadlock")
def more_than_is_ever_added(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    word, seen = global_words(k, "word"), k.var("seen", 0)
    adds(k, word[0])
    with thread(k, 1):
        waits(k, seen, word[0], 64 if right else 65)


@wrong("counter-wait", breaks="deadlock")
def a_register_that_holds_another_number_than_the_word(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    word, seen = global_words(k, "word"), k.var("seen", 7, s32 if right else u32)
    with thread(k, 0):
        k.mem.store(word[0], -1, sem="release", scope="gpu")
    with thread(k, 1), k.while_(seen > 5):
        k.mem.load(seen, word[0], sem="acquire", scope="gpu")


@wrong("counter-wait", breaks="deadlock")
def a_register_that_holds_the_low_bits_of_the_word(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    word, seen = global_words(k, "word"), k.var("seen", 0, u16 if right else u8)
    with thread(k, 0):
        adds(k, word[0], 256)
    with thread(k, 1), k.while_(seen < 1):
        k.mem.load(seen, word[0], sem="acquire", scope="gpu")


@wrong("counter-wait", not_covered="what it holds is not known")
def a_word_beside_a_pointer(k: Builder, *, right: bool) -> None:
    """It does not begin with 0, as the contents of its tensor say."""
    k.launch(warps=2)
    word = global_words(k, "word", 4)
    k._params[0] = word = replace(
        word, contents=bytes([0 if right else 7, *[0] * 15]).hex(),
        pointers=() if right else (Pointed(8, "word"),),
    )  # fmt: skip
    seen = k.var("seen", 1)
    with thread(k, 0):
        adds(k, word[0], 0)
    with thread(k, 1), k.while_(seen.ne(0)):
        k.mem.load(seen, word[0], sem="acquire", scope="gpu")


@wrong("counter-A", not_covered="may come before those that a wait needs")
def a_thread_too_many_that_adds(k: Builder, *, right: bool) -> None:
    k.launch(warps=3)
    word, seen = global_words(k, "word"), k.var("seen", 0)
    for n in (0, 2):
        with thread(k, n):
            adds(k, word[0])
    with thread(k, 1):
        waits(k, seen, word[0], 2 if right else 1)


@wrong("counter-A", breaks="H6")
def a_release_at_another_word(k: Builder, *, right: bool) -> None:
    """With a release there before, a store that is relaxed hands on as much (H3)."""
    k.launch(warps=2)
    x, word, seen = words(k, "x"), words(k, "word", 2), k.var("seen", 0)
    begin(k, zero=[word])
    with thread(k, 0):
        k.mem.store(x[0], 1)
        adds(k, word[0 if right else 1])
        k.mem.store(word[0], 2, sem="relaxed", scope="gpu")
    with thread(k, 1):
        waits(k, seen, word[0], 2)
        k.mem.load(seen, x[0])


@wrong("counter-A", not_covered="hands over less than a wait has learned")
def a_store_instead_of_an_exchange(k: Builder, *, right: bool) -> None:
    x, word, seen = stores_and_adds(k, warps=3)
    with thread(k, 1):
        waits(k, seen, word[0], 1)
        if right:
            k.mem.atomic(word[0], "exch", 2, sem="relaxed", scope="gpu")
        else:
            k.mem.store(word[0], 2, sem="relaxed", scope="gpu")
    with thread(k, 2):
        waits(k, seen, word[0], 1)
        k.mem.load(seen, x[0])


@wrong("counter-C", not_covered="others may keep from passing")
def a_number_that_may_be_gone(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    word, seen = global_words(k, "word"), k.var("seen", 0)
    with thread(k, 0), k.while_(seen < 1 if right else seen.ne(1)):
        k.mem.load(seen, word[0], sem="acquire", scope="gpu")
    with thread(k, 1), k.loop(2):
        adds(k, word[0])


@wrong("counter-just", not_covered="may pass before all that it has found")
def an_amount_that_is_enough_alone(k: Builder, *, right: bool) -> None:
    k.launch(warps=3)
    word, seen = global_words(k, "word"), k.var("seen", 0)
    for n in (0, 1):
        with thread(k, n):
            adds(k, word[0], 1 + n)
    with thread(k, 2):
        waits(k, seen, word[0], 3 if right else 2)


@wrong("counter-order", not_covered="what it holds is not known")
def two_stores_in_no_order(k: Builder, *, right: bool) -> None:
    k.launch(warps=3)
    word, seen = global_words(k, "word"), k.var("seen", 0)
    with thread(k, 0):
        k.mem.store(word[0], 1, sem="release", scope="gpu")
    with thread(k, 1):
        if right:
            waits(k, seen, word[0], 1)
        k.mem.store(word[0], 2, sem="release", scope="gpu")
    with thread(k, 2):
        waits(k, seen, word[0], 1)


@wrong("counter-order", not_covered="what it holds is not known")
def an_addition_for_the_own_cta(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    word, seen = words(k, "word"), k.var("seen", 0)
    begin(k, zero=[word])
    k.cluster.sync()
    with cta(k, 1):
        scope: Literal["cta", "cluster"] = "cluster" if right else "cta"
        k.mem.atomic(word[0].at(0), "add", 1, sem="release", scope=scope)
    k.cluster.sync()
    with cta(k, 0):
        waits(k, seen, word[0], 1)


@wrong("counter-life", not_covered="a change of another kind")
def a_copy_that_adds_to_a_word_that_was_waited_for(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    source, word, seen = words(k, "source", 4), words(k, "word", 8), k.var("seen", 0)
    b = k.mbarriers("b")
    begin(k, (b, 1), zero=[source, word])
    k.fence.mbarrier_init()
    k.cluster.sync()
    with cta(k, 0):
        waits(k, seen, word[4 if right else 0], 0)
    k.fence.proxy_async()
    k.cluster.sync()
    with cta(k, 1):
        k.bulk.reduce_peer(word[ds(0, 4)].at(0), source, b[0].at(0))
    with cta(k, 0):
        k.mbarrier.arrive_expect_tx(b, 16)
        k.mbarrier.wait(b, 0, scope="cluster")
    k.cluster.sync()


# ---------------------------------------------------------------------- all clusters together


def meets(k: Builder, seen: Var, word: View, number: int, scope: Literal["cluster", "gpu"]) -> None:
    """A barrier of all CTAs, of one thread of each."""
    k.mem.atomic(word, "add", 1, sem="release", scope=scope)
    waits(k, seen, word, number)


@wrong("resident", not_covered="need not be resident", together=True)
def a_barrier_of_clusters_that_need_not_run_together(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=3, cooperative=right)
    word, seen = global_words(k, "word"), k.var("seen", 0)
    with k.elected():
        meets(k, seen, word[0], 3, "gpu")


@wrong("counter-A", not_covered="may come before those that a wait needs", together=True)
def data_of_another_cluster_behind_a_barrier_of_all(k: Builder, *, right: bool) -> None:
    k.launch(warps=2, grid=4, cluster=2, cooperative=True)
    word, g, seen = global_words(k, "word"), global_words(k, "g", 256), k.var("seen", 0)
    at = 64 * k.cta_x + k.thread_id
    k.mem.store(g[at], 1)
    k.cluster.sync()
    with thread(k, 0):
        meets(k, seen, word[0], 4 if right else 3, "gpu")
    k.sync_threads()
    k.mem.load(seen, g[(at + 128) % 256])


@wrong("clusters", breaks="H6", together=True)
def data_of_another_cluster_behind_a_cluster_barrier(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=4, cluster=2, cooperative=True)
    word, g, seen = global_words(k, "word"), global_words(k, "g", 4), k.var("seen", 0)
    with k.elected():
        waits(k, seen, word[0], 0)
        k.mem.store(g[k.cta_x], 1)
    k.cluster.sync()
    with k.elected():
        k.mem.load(seen, g[k.cta_x ^ (1 if right else 2)])


@wrong("counter-order", not_covered="what it holds is not known", together=True)
def a_barrier_of_clusters_by_additions_for_the_own_one(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cooperative=True)
    word, seen = global_words(k, "word"), k.var("seen", 0)
    with k.elected():
        meets(k, seen, word[0], 2, "gpu" if right else "cluster")


@wrong("counter-wait", breaks="H6", together=True)
def data_behind_a_fence_for_the_own_cluster(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cooperative=True)
    word, g, seen = global_words(k, "word"), global_words(k, "g"), k.var("seen", 0)
    with k.elected():
        with k.if_(k.cta_x.eq(0)):
            k.mem.store(g[0], 1)
            adds(k, word[0])
        with k.if_(k.cta_x.eq(1)):
            waits(k, seen, word[0], 1, "relaxed")
            k.fence.memory("acq_rel", "gpu" if right else "cluster")
            k.mem.load(seen, g[0])


@wrong("D9", together=True)
def a_store_to_a_peer_of_the_own_cluster_that_may_have_ended(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=4, cluster=2, cooperative=True)
    x, word, seen = words(k, "x"), global_words(k, "word"), k.var("seen", 0)
    k.cluster.sync()
    with cta(k, 1):
        waits(k, seen, word[0], 0)
        k.mem.store(x[0].at(0), 1)
    if right:
        k.cluster.sync()


@wrong("out-of-bounds", together=True)
def a_store_to_a_rank_that_only_another_cluster_could_have(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=4, cluster=2, cooperative=True)
    x, n = words(k, "x"), k.var("n", 1 if right else 2)
    k.cluster.sync()
    with cta(k, 0):
        k.mem.store(x[0].at(n), 1)
    k.cluster.sync()
