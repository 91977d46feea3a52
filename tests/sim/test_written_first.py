"""What goes on from shared memory that nothing has written: reductions as well as reads."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, u32
from tilesim.checker import check


@kernel(warps=2)
def counted(
    k: Builder, *, zero: bool = False, how: Literal["add", "exch", "max"] = "add",
    used: bool = False,
) -> None:  # fmt: skip
    """All warps combine with one word, which should hold something before."""
    word, old = k.shared("word", u32, (1,)), k.var("old", 0, dtype=u32)
    if zero:
        with k.one_thread():
            k.mem.store(word[0], 0)
    k.sync_threads()
    with k.elected():
        if used:
            k.mem.atomic(word[0], how, 1, result=old)  # used
        else:
            k.mem.atomic(word[0], how, 1)
    k.sync_threads()
    k.mem.load(old, word[0])


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("how", ["add", "max"])
def test_an_atomic_goes_on_from_what_is_there(how: Literal["add", "max"], *, used: bool) -> None:
    assert not check(counted.build(zero=True, how=how, used=used)).findings
    finding = found(check(counted.build(how=how, used=used)), "uninitialised-read")
    step = "# used" if used else "k.mem.atomic(word[0], how, 1)\n"
    assert {line for _, line in sites(finding)} == {at(counted, step.strip("\n"))}


def test_an_exchange_whose_result_is_not_used_puts_a_number_there() -> None:
    assert not check(counted.build(how="exch")).findings
    finding = found(check(counted.build(how="exch", used=True)), "uninitialised-read")
    assert {line for _, line in sites(finding)} == {at(counted, "# used")}
