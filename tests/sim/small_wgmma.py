"""Steps of warpgroups in tilesim's IR."""

from __future__ import annotations

from tests.sim import steps as s
from tilesim import Builder, bf16, f32
from tilesim.ir.declarations import SharedTensor
from tilesim.ir.expr import Expr


class GroupSteps:
    """The accumulators, and an operand A that nobody changes; words are operands B."""

    def __init__(self, k: Builder, accumulators: int) -> None:
        self._k = k
        self._a = k.shared("a", bf16, (64, 16), swizzle=32)
        self._accs = [k.fragment(f"acc{i}", f32, (64, 8), "warpgroup") for i in range(accumulators)]

    def begin(self, words: SharedTensor) -> None:
        """The first warp writes A and all words."""
        k = self._k
        with k.role("first", 0):
            a, b = k.fragment("ones_a", bf16, (64, 16)), k.fragment("ones_b", bf16, (8, 16))
            k.tile.fill(a, 1)
            k.tile.store(self._a, a)
            k.tile.fill(b, 1)
            for word in range(words.shape[0]):
                k.tile.store(words[word], b)
            k.fence.proxy_async()

    def fill(self) -> None:
        """A warpgroup sets its accumulators."""
        for acc in self._accs:
            self._k.tile.fill(acc, 0)

    def step(self, step: s.Step, words: SharedTensor, trip: Expr | None) -> None:
        """What a warpgroup executes."""
        k = self._k
        match step:
            case s.WgFence():
                k.wgmma.fence()
            case s.WgMma(word=word, acc=acc, stages=stages):
                b = words[word if stages == 1 or trip is None else trip % stages + word]
                k.wgmma.mma_async(self._accs[acc], self._a, b)
            case s.WgCommit():
                k.wgmma.commit_group()
            case s.WgWait(pending=pending):
                k.wgmma.wait_group(pending)
            case s.WgUse(acc=acc):
                k.tile.map(self._accs[acc], "neg", self._accs[acc])
            case _:
                raise AssertionError(step)
