"""Slots: the right operation on the barrier or the data of another stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesim.fuzz.faults import Block, changed, has_effect, statement_fault
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.expr import binary
from tilesim.ir.memory import Mbar, SharedTensor, View
from tilesim.ir.op import Op

#: of an mbarrier: where neighbours are, if they are one array
_BYTES = 8


@statement_fault("barrier of another slot", "the barrier index is off by one", Op)
def _barrier(op: Op) -> Iterator[tuple[str, Block]]:
    mbar = getattr(op, "mbar", None)
    if not isinstance(mbar, Mbar) or has_effect(op, fx.InitsMbarrier):
        return
    if isinstance(mbar.array, AddressedMbarriers):
        after = replace(mbar.array, address=binary("+", mbar.array.address, _BYTES))
        moved = changed(op, mbar=replace(mbar, array=after))
        yield f"{op.mnemonic} uses the barrier {_BYTES} bytes further", (moved,)
    elif mbar.array.count > 1:
        index = binary("%", binary("+", mbar.index, 1), mbar.array.count)
        moved = changed(op, mbar=replace(mbar, index=index))
        yield f"{op.mnemonic} uses the barrier of the next slot", (moved,)


@statement_fault("data of another slot", "the stage's data index is off by one", Op)
def _data(op: Op) -> Iterator[tuple[str, Block]]:
    for name, view in vars(op).items():
        if not isinstance(view, View) or not isinstance(view.tensor, SharedTensor):
            continue
        slots = view.tensor.shape[0]
        if len(view.tensor.shape) < 2 or view.extents[0] != 1 or slots < 2:
            continue
        first = binary("%", binary("+", view.offsets[0], 1), slots)
        moved = replace(view, offsets=(first, *view.offsets[1:]))
        what = f"{op.mnemonic} uses the next slot of {view.tensor.name}"
        yield what, (changed(op, **{name: moved}),)
