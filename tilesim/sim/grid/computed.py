"""What an instruction computes of its operands, in all clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilesim.ir.expr import Expr
from tilesim.ir.memory import Fragment, GlobalTensor, View
from tilesim.ir.op import Op
from tilesim.ir.tmem import TmemLayout, TmemView
from tilesim.sim.expression import Fit
from tilesim.sim.machine.lanes import FULL, mask_array


def computed(
    op: Op, fits: Sequence[Fit | None], operands: Mapping[int, Any], clusters: int
) -> tuple[Any, ...]:
    """The registers that it sets, each (clusters, 32), brought into their types by ``fits``.

    ``operands``: by the identity of the expression its value, or one per cluster. Clusters with the
    same operands are computed once.
    """
    known: dict[bytes, tuple[Any, ...]] = {}
    rows: list[tuple[Any, ...]] = []
    for cluster in range(clusters):
        inputs = _Operands(operands, cluster)
        if inputs.name not in known:
            known[inputs.name] = tuple(op.evaluate(inputs))
        rows.append(known[inputs.name])
    columns = (_signed(np.stack(column)) for column in zip(*rows, strict=True))
    # an opcode may have more results than are kept
    return tuple(
        column if fit is None else fit(column) for fit, column in zip(fits, columns, strict=False)
    )


class _Operands:
    """The operands of an instruction in one cluster, as `tilesim.ir.op.Inputs`."""

    active = mask_array(FULL)
    time = quarter = 0

    def __init__(self, operands: Mapping[int, Any], cluster: int) -> None:
        self._values = {k: v[cluster] if np.ndim(v) == 2 else v for k, v in operands.items()}
        self.name = b"".join(np.asarray(v).tobytes() for v in self._values.values())

    def lanes(self, operand: Expr) -> Any:
        """An operand's value in each lane."""
        return np.broadcast_to(self._values[id(operand)], 32)

    def address(self, place: View | GlobalTensor | Fragment) -> Any:
        """No operand that is an expression."""
        raise NotImplementedError(str(place))

    memory = tile = address

    def scalar(self, operand: Expr) -> Any:
        """Tiles are not computed here."""
        raise NotImplementedError(str(operand))

    def part(self, place: View | TmemView, cta: int, layout: TmemLayout | None = None) -> Any:
        """Nor are products."""
        raise NotImplementedError(str(place))


def _signed(column: Any) -> Any:
    """Results as registers hold them: integers of Python where 64 bits with a sign do not do."""
    if column.dtype == np.uint64 and (column > np.iinfo(np.int64).max).any():
        return column.astype(object)
    return column.astype(np.int64)
