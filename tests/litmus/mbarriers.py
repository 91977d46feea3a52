"""LITMUS section A, first half: arrivals, bytes and ordering of one mbarrier."""

from __future__ import annotations

from typing import Literal

from tilesim import Builder, s32

from .notation import begin, global_words, thread, words
from .table import completes, defect, fails, row

SEVENS = {"g": [7] * 8}
MESSAGE_RACE = defect("race", T0="k.mem.store(x[0], 1)", T1="k.mem.load(r, x[0])")
COPY_RACE = defect("race", T0="k.bulk.load(d, g, b)", T1="k.mem.load(r, d[0])")
WAITS = defect("deadlock", T1="k.mbarrier.wait(b, 0)")


@row("LA01", completes(out=[1]))
@row("LA02-arrive", fails(MESSAGE_RACE), arrive="relaxed")
@row("LA02-wait", fails(MESSAGE_RACE), wait="relaxed")
def message_passing(
    k: Builder,
    *,
    arrive: Literal["release", "relaxed"] = "release",
    wait: Literal["acquire", "relaxed"] = "acquire",
) -> None:
    k.launch(warps=2)
    b, x, out, r = k.mbarriers("b"), words(k, "x"), global_words(k, "out"), k.var("r")
    begin(k, (b, 1), zero=[x])
    with thread(k, 0):
        k.mem.store(x[0], 1)
        k.mbarrier.arrive(b, sem=arrive)
    with thread(k, 1):
        k.mbarrier.wait(b, 0, sem=wait)
        k.mem.load(r, x[0])
        k.mem.store(out[0], r)


@row("LA03", completes())
def initial_parity_one(k: Builder) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.wait(b, 1)


@row(
    "LA04",
    fails(
        defect(
            "deadlock",
            producer="k.mbarrier.wait(empty, parity)",
            consumer="k.mbarrier.wait(full, 0)",
        )
    ),
    parity=0,
)
@row("LA04-parity-one", completes(out=[1]), parity=1)
def producer_parity(k: Builder, *, parity: int) -> None:
    k.launch(warps=2)
    empty, full = k.mbarriers("empty"), k.mbarriers("full")
    x, out, r = words(k, "x"), global_words(k, "out"), k.var("r")
    begin(k, (empty, 1), (full, 1), zero=[x])
    with thread(k, 0, "producer"):
        k.mbarrier.wait(empty, parity)
        k.mem.store(x[0], 1)
        k.mbarrier.arrive(full)
    with thread(k, 1, "consumer"):
        k.mbarrier.wait(full, 0)
        k.mem.load(r, x[0])
        k.mem.store(out[0], r)
        k.mbarrier.arrive(empty)


@row("LA05", fails(defect("deadlock", T0="k.mbarrier.wait(b, 0)")), count=2)
@row("LA05-counted", completes(), count=1)
def missing_arrival(k: Builder, *, count: int) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, count))
    with thread(k, 0):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)


@row("LA06", fails(defect("over-arrival", T0="k.mbarrier.arrive(")), count=2, arrivals=3)
@row(
    "LA06-no-complete",
    fails(defect("over-arrival", T0="k.mbarrier.arrive(")),
    count=1,
    arrivals=1,
    no_complete=True,
)
@row("LA06-counted", completes(), count=3, arrivals=3)
def over_arrival_count(k: Builder, *, count: int, arrivals: int, no_complete: bool = False) -> None:
    k.launch(warps=1)
    b, token = k.mbarriers("b"), k.var("token")
    begin(k, (b, count))
    with thread(k, 0):
        k.mbarrier.arrive(b, arrivals, token=token, no_complete=no_complete)


# An arrival that finds the bytes missing traps (W, U5); before the arming or after the copy it is
# counted in the other phase, which is the same mistake met at another time.
@row(
    "LA07",
    fails(
        defect("over-arrival", T1="k.mbarrier.arrive(b)", T0="k.mbarrier.arrive_expect_tx(b, 16)"),
        also=("phase-ambiguity", "async-at-exit"),
    ),
)
def over_arrival_in_tx_window(k: Builder) -> None:
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 16)
        k.bulk.load(d, g, b)
    with thread(k, 1):
        k.mbarrier.arrive(b)


# The text forbids the second arrival itself (A24); in practice it only makes T1's parity ambiguous.
@row(
    "LA08",
    practice=fails(defect("phase-alias"), WAITS),
    ptx=fails(defect("phase-ambiguity", T0="# unobserved"), also=("phase-alias", "deadlock")),
)
@row("LA08-observed", completes(), observe=True)
def double_arrive_no_wait(k: Builder, *, observe: bool = False) -> None:
    k.launch(warps=2)
    b, seen = k.mbarriers("b"), k.mbarriers("seen")
    begin(k, (b, 1), (seen, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b)
        if observe:
            k.mbarrier.wait(seen, 0)
        k.mbarrier.arrive(b)  # unobserved
    with thread(k, 1):
        k.mbarrier.wait(b, 0)
        if observe:
            k.mbarrier.arrive(seen)


# T0 knows from `done` that phase 0 is over, but not that T2 has looked at it: fine in practice,
# since the next phase needs T2 as well, and a breach of the text (A24) on some schedules.
@row(
    "LA08-unordered",
    practice=completes(),
    ptx=fails(defect("phase-ambiguity", T0="# unobserved")),
)
def arrive_without_looking(k: Builder) -> None:
    k.launch(warps=3)
    b, done = k.mbarriers("b"), k.mbarriers("done")
    begin(k, (b, 2), (done, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(done, 0)
        k.mbarrier.arrive(b)  # unobserved
    with thread(k, 1):
        k.mbarrier.arrive(b)
        k.mbarrier.arrive(done)
    with thread(k, 2):
        k.mbarrier.wait(b, 0)
        k.mbarrier.arrive(b)


@row("LA09", completes(SEVENS, out=[7]), first="arm")
@row("LA10", completes(SEVENS, out=[7]), first="copy")
def one_thread_arms_and_copies(k: Builder, *, first: str) -> None:
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), words(k, "d", 8), global_words(k, "g", 8)
    out, r = global_words(k, "out"), k.var("r")
    begin(k, (b, 1))
    with thread(k, 0):
        if first == "arm":
            k.mbarrier.arrive_expect_tx(b, 32)
        k.bulk.load(d, g, b)
        if first == "copy":
            k.mbarrier.arrive_expect_tx(b, 32)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)
        k.mem.load(r, d[0])
        k.mem.store(out[0], r)


@row("LA11", completes(SEVENS, out=[7]))
def remote_arm_late(k: Builder) -> None:
    k.launch(warps=3)
    b, d, g = k.mbarriers("b"), words(k, "d", 8), global_words(k, "g", 8)
    out, r = global_words(k, "out"), k.var("r")
    begin(k, (b, 1))
    with thread(k, 0):
        k.bulk.load(d, g, b)
    with thread(k, 2):
        k.mbarrier.arrive_expect_tx(b, 32)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)
        k.mem.load(r, d[0])
        k.mem.store(out[0], r)


# In LA12 and LA13 nobody waits for the copy, so the CTA may also end before it lands.
@row("LA12", fails(COPY_RACE, also=("async-at-exit",)), first="arrive")
@row(
    "LA13", fails(COPY_RACE, WAITS, defect("phase-ambiguity"), also=("async-at-exit",)),
    first="copy",
)  # fmt: skip
def arrive_without_bytes(k: Builder, *, first: str) -> None:
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), words(k, "d", 8), global_words(k, "g", 8)
    out, r = global_words(k, "out"), k.var("r")
    begin(k, (b, 1), zero=[d])
    with thread(k, 0):
        if first == "arrive":
            k.mbarrier.arrive(b)
            k.mbarrier.expect_tx(b, 32)
        k.bulk.load(d, g, b)
        if first == "copy":
            k.mbarrier.arrive(b)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)
        k.mem.load(r, d[0])
        k.mem.store(out[0], r)


# expect_tx is not an arrive-on: phase 1 may be expected before phase 0 has been observed (A24).
@row("LA12-expect", completes())
def expect_before_observation(k: Builder) -> None:
    k.launch(warps=2)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b)
        k.mbarrier.expect_tx(b, 32)
        k.mbarrier.complete_tx(b, 32)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)


@row("LA14-less", fails(WAITS), expected=16)
@row("LA14-more", fails(WAITS), expected=64)
@row("LA14-right", completes(), expected=32)
def wrong_byte_count(k: Builder, *, expected: int) -> None:
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), words(k, "d", 8), global_words(k, "g", 8)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, expected)
        k.bulk.load(d, g, b)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)


# Either copy can be the one that ends the phase: the other one races.
@row(
    "LA15",
    fails(
        defect("race", T0="k.bulk.load(d[0], g[0], b)", T1="k.mem.load(r, d[0, 0])"),
        defect("race", T0="k.bulk.load(d[1], g[1], b)", T1="k.mem.load(r, d[1, 0])"),
        also=("phase-ambiguity", "async-at-exit"),
    ),
    expected=64,
)
@row("LA15-both", completes({"g": [[3] * 16, [4] * 16]}, out=[3, 4]), expected=128)
def expect_hits_zero_early(k: Builder, *, expected: int) -> None:
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (2, 16)), k.tensor("g", s32, (2, 16))
    out, r = global_words(k, "out", 2), k.var("r")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, expected)
        k.bulk.load(d[0], g[0], b)
        k.bulk.load(d[1], g[1], b)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)
        k.mem.load(r, d[0, 0])
        k.mem.store(out[0], r)
        k.mem.load(r, d[1, 0])
        k.mem.store(out[1], r)
