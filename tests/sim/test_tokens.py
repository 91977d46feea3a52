"""A token has 64 bits, and so have its copies; what is none is in `marked/kernels/barriers.py`."""

from __future__ import annotations

from tilesim import Builder
from tilesim.ir.registers import token_variables


def test_copies_of_tokens_have_64_bits_in_emitted_code() -> None:
    k = Builder("copied", warps=1)
    b, t, copy, other = k.mbarriers("b"), k.var("t"), k.var("copy"), k.var("other", 0)
    with k.elected():
        k.mbarrier.init(b, 1)
        k.mbarrier.arrive(b, token=t)
        k.assign(copy, t)
        k.assign(other, other + 1)
        k.mbarrier.wait(b, token=copy)
    assert token_variables(k.finish()) == {"t", "copy"}
