"""Words that count, at the edges of what one run proves of them: right, and wrong twins.

Of draws it must not matter which number of a round one gets; of waits, which of the additions they
have seen. A wrong program goes wrong in an order of its accesses that the first run has not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tilesim import Builder, kernel
from tilesim.checker import Report, check
from tilesim.ir.types import DType, s32, u32

SOURCE = Path(__file__).read_text().splitlines()


def sides(report: Report) -> set[str]:
    """What is said at the lines of the participants of all findings."""
    return {
        SOURCE[p.loc.line - 1].rpartition("# ")[2] for f in report.findings for p in f.participants
    }


@kernel(warps=3)
def rounds(
    k: Builder, *, amounts: tuple[int, int] = (1, 1), acts: str = "least", ordered: bool = False,
    looks: bool = True, type: DType = u32,
) -> None:  # fmt: skip
    """Two warps add to a word, and act by what they find; the third one waits for both."""
    count, data = k.tensor("count", type, (1,)), k.tensor("data", s32, (1,))
    t, x = k.var("t", 0, dtype=type), k.var("x", 0, dtype=type)
    total = sum(amounts)
    total = total if type is u32 else (total + 2**31) % 2**32 - 2**31
    acting = {
        "least": lambda: t >= 2, "odd": lambda: (t & 1).eq(1), "second": lambda: (t // 2).eq(1),
        "below": lambda: t < 0, "third": lambda: t >= 3, "first": lambda: t >= 1,
    }  # fmt: skip
    with k.role("one", 0), k.elected():
        k.mem.atomic(count[0], "add", amounts[0], result=t, sem="acq_rel", scope="gpu")
        with k.if_(acting[acts]()):
            k.mem.store(data[0], 1)  # acts
    with k.role("other", 1), k.elected():
        if ordered:
            with k.while_(x < amounts[0]):
                k.mem.load(x, count[0], sem="acquire", scope="gpu")
        if looks:
            k.mem.atomic(count[0], "add", amounts[1], result=t, sem="acq_rel", scope="gpu")
            with k.if_(acting[acts]()):
                k.mem.store(data[0], 1)  # acts
        else:
            k.mem.atomic(count[0], "add", amounts[1], sem="release", scope="gpu")
    with k.role("waits", 2), k.elected():
        k.mem.store(data[0], 2)  # beside
        with k.while_(x.ne(total)):
            k.mem.load(x, count[0], sem="acquire", scope="gpu")


#: amounts, when a warp acts, and what else is so; which verdict it gets if it may not act
ROUNDS: dict[str, tuple[tuple[int, int], str, dict[str, object], str]] = {
    "less than two": ((1, 1), "least", {}, "proved"),
    "the second one": ((1, 1), "first", {}, "failed"),
    "a larger one that may come first": ((1, 2), "least", {}, "failed"),
    "more than both": ((1, 2), "third", {}, "proved"),
    "each of them less": ((2, 2), "third", {}, "proved"),
    "just so much": ((2, 2), "least", {}, "failed"),
    "a larger one behind": ((1, 2), "least", {"ordered": True}, "proved"),
    "a larger one behind it acts": ((2, 2), "least", {"ordered": True}, "failed"),
    "an addition that does not look": ((1, 1), "first", {"looks": False}, "failed"),
    "an addition that does not look, of less": ((1, 1), "least", {"looks": False}, "exhausted"),
    "the same half": ((1, 1), "second", {}, "proved"),
    "a larger one, and halves": ((1, 2), "second", {}, "failed"),
    "a large one in front": ((2, 1), "second", {}, "failed"),
    "odd ones": ((2, 1), "odd", {}, "failed"),
    "no odd ones": ((2, 2), "odd", {}, "proved"),
    "a sign": ((1, -(2**31)), "below", {"type": s32}, "failed"),
    "no sign": ((1, 5), "below", {"type": s32}, "proved"),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_numbers_that_decide_something(name: str) -> None:
    amounts, acts, more, verdict = ROUNDS[name]
    found = check(rounds.build(amounts=amounts, acts=acts, **more))
    assert found.verdict == verdict
    if verdict == "failed":
        assert found.rules == {"race"}
        assert sides(found) == {"acts", "beside"}
