"""Vectors that acquire or release: none of their elements orders another (SEMANTICS H15).

A relaxed barrier makes the threads of these programs follow each other in time, and hands nothing
over: what is ordered in memory is ordered by the flags.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from tests.litmus.notation import begin, global_words, thread, words
from tests.litmus.table import Completes, completes, defect, fails, row
from tilesim import Builder
from tilesim.ir.declarations import Mbarriers, SharedTensor


def _flags(k: Builder) -> tuple[SharedTensor, Mbarriers]:
    """Two flags that are zero, and the barrier."""
    k.launch(warps=2)
    flags, done = words(k, "flags", 2), k.mbarriers("done", 1)
    begin(k, (done, 1), zero=(flags,))
    return flags, done


def _in_time(out: list[int]) -> Completes:
    """Right, but explored: flags that are ordered in time alone; and exploration makes no other
    order of a vector's elements."""
    note = "flags that are ordered in time alone are explored"
    return completes(out=out, verdicts=("bounded", "exhausted"), note=note)


@contextmanager
def _first(k: Builder, done: Mbarriers) -> Iterator[None]:
    with thread(k, 0, "W0"):
        yield
        k.mbarrier.arrive(done, sem="relaxed")


@contextmanager
def _then(k: Builder, done: Mbarriers) -> Iterator[None]:
    with thread(k, 1, "W1"):
        k.mbarrier.wait(done, 0, sem="relaxed")
        yield


@row("LV19", completes(out=[7]), flag=0)
@row("LV19-second", completes(out=[7]), flag=1)
@row(
    "LV19-relaxed", fails(defect("race", W0="k.mem.store(x[0]", W1="k.mem.load(r")),
    flag=1, stores="relaxed",
)  # fmt: skip
def each_flag_of_a_vector_releases_what_came_before(
    k: Builder, *, flag: int, stores: Literal["relaxed", "release"] = "release"
) -> None:
    flags, _ = _flags(k)
    x, out = words(k, "x"), global_words(k, "out")
    with thread(k, 0, "W0"):
        k.mem.store(x[0], 7)
        k.mem.store_vector(flags[0:2], (1, 1), sem=stores)
    with thread(k, 1, "W1"):
        f, r = k.var("f", 0), k.var("r", 0)
        with k.while_(f.eq(0)):
            k.mem.load(f, flags[flag], sem="acquire")
        k.mem.load(r, x[0])
        k.mem.store(out[0], r)


@row("LV20", _in_time([7]), flag=0, word=0)
@row("LV20-second", _in_time([7]), flag=1, word=1)
@row(
    "LV20-before", fails(defect("race", W0="k.mem.store_vector(", W1="k.mem.load(r")),
    flag=1, word=0,
)  # fmt: skip
@row(
    "LV20-after", fails(defect("race", W0="k.mem.store_vector(", W1="k.mem.load(r")),
    flag=0, word=1,
)  # fmt: skip
def a_flag_of_a_vector_hands_over_no_other_one(k: Builder, *, flag: int, word: int) -> None:
    (flags, done), out = _flags(k), global_words(k, "out")
    with _first(k, done):
        k.mem.store_vector(flags[0:2], (7, 7), sem="release")
    with _then(k, done):
        f, r = k.var("f", 0), k.var("r", 0)
        k.mem.load(f, flags[flag], sem="acquire")
        k.mem.load(r, flags[word])
        k.mem.store(out[0], r)


@row("LV21", _in_time([7]), flag=0)
@row("LV21-second", _in_time([7]), flag=1)
@row(
    "LV21-relaxed", fails(defect("race", W0="k.mem.store(x[0]", W1="k.mem.load(r")),
    flag=1, loads="relaxed",
)  # fmt: skip
def a_vector_acquires_what_each_element_reads(
    k: Builder, *, flag: int, loads: Literal["relaxed", "acquire"] = "acquire"
) -> None:
    flags, done = _flags(k)
    x, out = words(k, "x"), global_words(k, "out")
    with _first(k, done):
        k.mem.store(x[0], 7)
        k.mem.store(flags[flag], 1, sem="release")
    with _then(k, done):
        f, g, r = k.var("f", 0), k.var("g", 0), k.var("r", 0)
        k.mem.load_vector((f, g), flags[0:2], sem=loads)
        k.mem.load(r, x[0])
        k.mem.store(out[0], r)


_SAME = {"W0": "k.mem.store(flags[word]", "W1": "k.mem.load_vector("}


@row("LV22", _in_time([7]), flag=0, word=1)
@row("LV22-before", fails(defect("race", **_SAME)), flag=0, word=1, together=True)
@row("LV22-after", fails(defect("race", **_SAME)), flag=1, word=0, together=True)
def an_element_is_not_read_after_another_one(
    k: Builder, *, flag: int, word: int, together: bool = False
) -> None:
    (flags, done), out = _flags(k), global_words(k, "out")
    with _first(k, done):
        k.mem.store(flags[word], 7)
        k.mem.store(flags[flag], 1, sem="release")
    with _then(k, done):
        both = [k.var(f"f{i}", 0) for i in range(2)]
        if together:
            k.mem.load_vector(both, flags[0:2], sem="acquire")
        else:
            k.mem.load(both[flag], flags[flag], sem="acquire")
            k.mem.load(both[word], flags[word])
        k.mem.store(out[0], both[word])


@row("LV23", _in_time([9]), word=1)
@row(
    "LV23-other", fails(defect("race", W0="k.mem.store_vector(", W2="k.mem.store(flags[word]")),
    word=0,
)  # fmt: skip
def what_an_element_hands_over_is_handed_on(k: Builder, *, word: int) -> None:
    """W1 learns of the second element, and tells W2."""
    k.launch(warps=3)
    flags, out = words(k, "flags", 2), global_words(k, "out")
    done, told = k.mbarriers("done", 1), k.mbarriers("told", 1)
    begin(k, (done, 1), (told, 1), zero=(flags,))
    with _first(k, done):
        k.mem.store_vector(flags[0:2], (7, 7), sem="release")
    with _then(k, done):
        k.mem.load(k.var("f", 0), flags[1], sem="acquire")
        k.mbarrier.arrive(told)
    with thread(k, 2, "W2"):
        k.mbarrier.wait(told, 0)
        k.mem.store(flags[word], 9)
        k.mem.store(out[0], 9)


@row("LV24", completes(out=[7]))
@row(
    "LV24-read",
    fails(defect("uninitialised-read", W1=("k.mem.load(r, line[0])", "k.mem.discard"))),
    again=False,
)  # fmt: skip
@row(
    "LV24-unordered", fails(defect("race", W0="k.mem.load(s, line[1])", W1="k.mem.discard"),
                            also=("uninitialised-read",)), handed=False,
)  # fmt: skip
def a_line_that_is_discarded_is_written_again_before_it_is_read(
    k: Builder, *, again: bool = True, handed: bool = True
) -> None:
    """What another thread has read is discarded once it has said so."""
    k.launch(warps=2)
    line, out, done = global_words(k, "line", 32), global_words(k, "out"), k.mbarriers("done", 1)
    begin(k, (done, 1))
    r, s = k.var("r"), k.var("s")
    with thread(k, 0, "W0"):
        k.mem.load(s, line[1])
        k.mbarrier.arrive(done)
    with thread(k, 1, "W1"):
        if handed:
            k.mbarrier.wait(done, 0)
        k.mem.discard(line[0:32])
        if again:
            k.mem.store(line[0], 7)
        k.mem.load(r, line[0])
        k.mem.store(out[0], r)


@row("LV25", completes(out=[7]))
@row("LV25-alone", fails(defect("race", W0="k.mem.store(x[0], 7)", W1="k.mem.load(r, x[0])")),
     handed=False)  # fmt: skip
def a_fence_for_aliases_synchronises_no_threads(k: Builder, *, handed: bool = True) -> None:
    k.launch(warps=2)
    x, out, done = global_words(k, "x"), global_words(k, "out"), k.mbarriers("done", 1)
    begin(k, (done, 1))
    r = k.var("r")
    with thread(k, 0, "W0"):
        k.mem.store(x[0], 7)
        k.fence.proxy_alias()
        k.mbarrier.arrive(done, sem="release" if handed else "relaxed")
    with thread(k, 1, "W1"):
        k.mbarrier.wait(done, 0, sem="acquire" if handed else "relaxed")
        k.fence.proxy_alias()
        k.mem.load(r, x[0])
        k.mem.store(out[0], r)
