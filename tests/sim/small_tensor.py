"""Steps on tensor memory in tilesim's IR."""

from __future__ import annotations

from tests.sim import steps as s
from tilesim import Builder, bf16, f32
from tilesim.ir.declarations import SharedTensor, View
from tilesim.ir.expr import Expr, Operand
from tilesim.ir.tensor_memory import TmemView
from tilesim.lib.tensor_memory import TensorMemory

#: columns of a slot: 8 numbers in each of 128 lanes
_WIDTH = 8


class TensorSteps:
    """Allocates the slots, translates what is done with them, and frees them at the end."""

    def __init__(self, k: Builder, slots: int) -> None:
        self._k = k
        self._memory = TensorMemory(k, max(32, 1 << (slots * _WIDTH - 1).bit_length()))
        self._a = k.shared("a", bf16, (128, 16), swizzle=32)
        self._part = k.fragment("part", f32, (32, _WIDTH))
        self._address: Operand = 0

    def begin(self, words: SharedTensor) -> None:
        """Warp 0 writes A, which nobody changes, and then all words, and allocates."""
        k = self._k
        with k.role("warp 0", 0):
            a, b = k.fragment("ones_a", bf16, (128, 16)), k.fragment("ones_b", bf16, (8, 16))
            k.tile.fill(a, 1)
            k.tile.store(self._a, a)
            k.fence.proxy_async()
            k.tile.fill(b, 1)
            for word in range(words.shape[0]):
                k.tile.store(words[word], b)
        self._memory.allocate()

    def ready(self) -> None:
        """After the barrier of all threads."""
        self._address = self._memory.address()
        self._k.tile.fill(self._part, 0)

    def finish(self) -> None:
        """All warps meet, and warp 0 frees the slots."""
        self._memory.free()

    def _slot(self, slot: int, slots: int, trip: Expr | None) -> Operand:
        first = slot if slots == 1 or trip is None else trip % slots + slot
        return self._address + first * _WIDTH

    def engine(self, step: s.Mma | s.Cp, word: View, trip: Expr | None) -> None:
        """What one thread issues to the tensor core."""
        k, address = self._k, self._slot(step.slot, step.slots, trip)
        if isinstance(step, s.Mma):
            d = k.tcgen05.tensor(address, f32, (128, _WIDTH), name="d")
            k.tcgen05.mma(d, self._a, word, accumulate=0)
        else:
            for half in range(2):  # all of the word, to two lanes of every quarter
                rows = k.tcgen05.tensor(address + (half << 16), bf16, (4, 16), name="rows")
                k.tcgen05.cp(rows, word[4 * half : 4 * half + 4, :], "4x256b")

    def warp(self, step: s.Ld | s.St | s.TensorWait | s.TensorFence, trip: Expr | None) -> None:
        """What a whole warp executes."""
        k = self._k
        match step:
            case s.Ld(slot=slot, slots=slots):
                k.tcgen05.ld(self._part, self._lanes(slot, slots, trip))
            case s.St(slot=slot, slots=slots):
                k.tcgen05.st(self._lanes(slot, slots, trip), self._part)
            case s.TensorWait(stores=True):
                k.tcgen05.wait_st()
            case s.TensorWait():
                k.tcgen05.wait_ld()
            case s.TensorFence(before=True):
                k.tcgen05.fence_before_thread_sync()
            case s.TensorFence():
                k.tcgen05.fence_after_thread_sync()

    def _lanes(self, slot: int, slots: int, trip: Expr | None) -> TmemView:
        k = self._k
        lanes = self._slot(slot, slots, trip) + (k.warp_id % 4 << 21)
        return k.tcgen05.tensor(lanes, f32, (32, _WIDTH), name="d")
