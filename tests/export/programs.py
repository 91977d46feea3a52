"""Programs with one thing each that a model has to get right: right, and (``wrong``) not."""

from __future__ import annotations

from collections.abc import Callable

from tilesim import Builder, Program, s32, u32

BYTES = 128


def ring(*, wrong: str = "", stages: int = 2, iterations: int = 4, consumers: int = 2) -> Program:
    """A producer copies into a ring of stages, consumers give them back."""
    k = Builder("ring", warps=consumers + 1)
    source = k.tensor("source", u32, (iterations, 32))
    tiles = k.shared("tiles", u32, (stages, 32))
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    with k.one_thread():
        for each in range(stages):
            k.mbarrier.init(full[each], 1)
            k.mbarrier.init(empty[each], consumers + (wrong in ("count", "arrivals")))
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(iterations) as i:
        stage, parity = i % stages, (i // stages) & 1
        k.mbarrier.wait(empty[stage], parity ^ (0 if wrong == "parity" else 1))
        k.mbarrier.arrive_expect_tx(full[stage], BYTES * (2 if wrong == "bytes" else 1))
        k.bulk.load(tiles[stage], source[i], full[stage])
    with k.role("consumer", range(1, consumers + 1)), k.elected(), k.loop(iterations) as i:
        stage, parity = i % stages, (i // stages) & 1
        k.mbarrier.wait(full[stage], parity)
        k.mbarrier.arrive(empty[stage], 2 if wrong == "arrivals" else 1)
    return k.finish()


def carried(*, wrong: str = "") -> Program:
    """Stage and parity are variables that the loop carries along."""
    k = Builder("carried", warps=2)
    b = k.mbarriers("b", 3)
    stage, parity = k.var("stage", 0), k.var("parity", 0)
    with k.one_thread():
        for each in range(3):
            k.mbarrier.init(b[each], 1)
    k.sync_threads()
    with k.role("arriver", 0), k.elected(), k.loop(3) as i:
        k.mbarrier.arrive(b[i])
    with k.role("waiter", 1), k.loop(3):
        k.mbarrier.wait(b[stage], parity)
        k.assign(stage, stage + 1)
        with k.if_(stage.eq(2 if wrong else 3)):
            k.assign(stage, 0)
            k.assign(parity, parity ^ 1)
    return k.finish()


def named(*, wrong: str = "") -> Program:
    """Two warps hand over at a named barrier, one of them without waiting."""
    k = Builder("named", warps=2)
    with k.role("first", 0), k.loop(2):
        k.bar.arrive(1, 64)
        if wrong != "twice":
            k.bar.sync(2, 64)
    with k.role("second", 1), k.loop(2):
        k.bar.sync(1, 64 if wrong != "count" else 32)
        k.bar.sync(2, 64)
    return k.finish()


def exits(*, wrong: str = "") -> Program:
    """A warp leaves early; barriers of the whole CTA do not wait for it (E9)."""
    k = Builder("exits", warps=3)
    with k.role("idle", 2):
        k.exit()
    if wrong:
        k.bar.sync(0, 96)
    else:
        k.sync_threads()
    return k.finish()


def cluster(*, wrong: str = "") -> Program:
    """Rank 0 copies to both CTAs; both wait, and tell rank 0 with a remote arrival."""
    k = Builder("cluster", warps=1)
    k.launch(grid=2, cluster=2)
    source = k.tensor("source", u32, (32,))
    tile = k.shared("tile", u32, (32,))
    full, done = k.mbarriers("full"), k.mbarriers("done")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(done, 2)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.elected():
        if wrong == "unarmed":
            with k.if_(k.cluster_rank.eq(0)):
                k.mbarrier.arrive_expect_tx(full, BYTES)
        else:
            k.mbarrier.arrive_expect_tx(full, BYTES)
        with k.if_(k.cluster_rank.eq(0)):
            k.bulk.load(tile[:], source[:], full[0], multicast=0b11)
    k.mbarrier.wait(full, 0, scope="cluster")
    with k.elected():
        k.mbarrier.arrive(done[0].at(0), scope="cluster")
    if wrong != "early exit":
        with k.if_(k.cluster_rank.eq(0)):
            k.mbarrier.wait(done, 0, scope="cluster")
    if wrong == "no arrival":
        with k.if_(k.cluster_rank.eq(0)):
            k.cluster.arrive()
        k.cluster.wait()
    return k.finish()


def lifetime(*, wrong: str = "") -> Program:
    """An mbarrier is used between its initialisation and its end."""
    k = Builder("lifetime", warps=2)
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 1)
    if wrong != "unordered":
        k.sync_threads()
    with k.role("arriver", 0), k.elected():
        k.mbarrier.arrive(b)
    with k.role("waiter", 1), k.elected():
        k.mbarrier.wait(b, 0)
        k.mbarrier.inval(b)
        if wrong == "ended":
            k.mbarrier.arrive(b)
    return k.finish()


def tokens(*, wrong: str = "") -> Program:
    """Both warps arrive and wait with the token of their arrival."""
    k = Builder("tokens", warps=2)
    b, token = k.mbarriers("b"), k.var("token")
    with k.one_thread():
        k.mbarrier.init(b, 2 if not wrong else 1)
    k.sync_threads()
    with k.elected(), k.loop(2):
        k.mbarrier.arrive(b, token=token)
        k.mbarrier.wait(b, token=token)
    return k.finish()


def registers(*, wrong: str = "") -> Program:
    """One warpgroup gives registers away, another takes them."""
    k = Builder("registers", warps=8)
    k.launch(registers=128)
    with k.role("giver", range(4)):
        k.setmaxnreg("dec", 64 if not wrong else 96)
    with k.role("taker", range(4, 8)):
        k.setmaxnreg("inc", 192)
    return k.finish()


def drops(*, wrong: str = "") -> Program:
    """A warp takes part in the first phase only."""
    k = Builder("drops", warps=2)
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 2)
    k.sync_threads()
    with k.role("leaver", 0), k.elected():
        if wrong:
            k.mbarrier.arrive(b)
        else:
            k.mbarrier.arrive_drop(b)
    with k.role("stayer", 1), k.elected(), k.loop(2) as i:
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, i & 1)
    return k.finish()


def polls(*, wrong: str = "") -> Program:
    """A poll decides whether to wait; wrongly, it decides whether to arrive."""
    k = Builder("polls", warps=2)
    b, seen = k.mbarriers("b", 2), k.var("seen", 0)
    with k.one_thread():
        k.mbarrier.init(b[0], 1)
        k.mbarrier.init(b[1], 1)
    k.sync_threads()
    with k.role("arriver", 0), k.elected():
        k.mbarrier.arrive(b[0])
        k.mbarrier.wait(b[1], 0)
    with k.role("poller", 1), k.elected():
        k.mbarrier.test_wait(seen, b[0], 0)
        with k.if_(seen.eq(0)):
            k.mbarrier.wait(b[0], 0)
        if wrong:
            with k.if_(seen.eq(1)):
                k.mbarrier.arrive(b[1])
        else:
            k.mbarrier.arrive(b[1])
    return k.finish()


def leftover(*, wrong: str = "") -> Program:
    """A copy is waited for before the CTA ends."""
    k = Builder("leftover", warps=1)
    source, tile = k.tensor("source", s32, (32,)), k.shared("tile", s32, (32,))
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 1)
        k.mbarrier.arrive_expect_tx(b, BYTES)
        k.bulk.load(tile, source, b)
        if not wrong:
            k.mbarrier.wait(b, 0)
    return k.finish()


def late(*, wrong: str = "") -> Program:
    """cp.async arrives by itself when its copies are complete (C6)."""
    k = Builder("late", warps=2)
    source, tile = k.tensor("source", s32, (32,)), k.shared("tile", s32, (32,))
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 32)
    k.sync_threads()
    with k.role("copier", 0):
        k.cp_async.copy(tile, source)
        k.cp_async.mbarrier_arrive(b, noinc=not wrong)
    with k.role("waiter", 1):
        k.mbarrier.wait(b, 0)
    return k.finish()


#: program, what is wrong with it, how SPIN shows it, and the rules of which tilesim finds one
TWINS: tuple[tuple[Callable[..., Program], str, str, frozenset[str]], ...] = (
    (ring, "count", "deadlock", frozenset({"deadlock"})),
    (ring, "parity", "deadlock", frozenset({"deadlock"})),
    (ring, "bytes", "deadlock", frozenset({"deadlock"})),
    (ring, "arrivals", "assertion", frozenset({"over-arrival"})),
    (carried, "wrong", "deadlock", frozenset({"deadlock"})),
    (named, "twice", "deadlock", frozenset({"deadlock", "named-barrier"})),
    (named, "count", "assertion", frozenset({"named-barrier"})),
    (exits, "wrong", "deadlock", frozenset({"deadlock"})),
    (cluster, "unarmed", "deadlock", frozenset({"deadlock"})),
    (cluster, "early exit", "assertion", frozenset({"peer-exit"})),
    (cluster, "no arrival", "assertion", frozenset({"participation"})),
    (lifetime, "unordered", "assertion", frozenset({"init-visibility", "uninitialised-barrier"})),
    (lifetime, "ended", "assertion", frozenset({"barrier-lifetime"})),
    (tokens, "wrong", "assertion", frozenset({"phase-alias"})),
    (registers, "wrong", "deadlock", frozenset({"register-pool", "deadlock"})),
    (drops, "wrong", "deadlock", frozenset({"deadlock"})),
    (polls, "wrong", "deadlock", frozenset({"deadlock"})),
    (leftover, "wrong", "assertion", frozenset({"async-at-exit"})),
    (late, "wrong", "deadlock", frozenset({"deadlock"})),
)
