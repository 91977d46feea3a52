"""What an instruction computes of its operands, in all clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilesim.ir.expr import Expr
from tilesim.ir.op import Computation
from tilesim.sim.expression import Fit


def computed(
    op: Computation, fits: Sequence[Fit | None], operands: Mapping[int, Any], clusters: int
) -> tuple[Any, ...]:
    """The registers that it sets, each (clusters, 32), brought into their types by ``fits``.

    ``operands``: by the identity of the expression its value, or one per cluster. Clusters with the
    same operands are computed once.
    """
    known: dict[bytes, tuple[Any, ...]] = {}
    rows: list[tuple[Any, ...]] = []
    for cluster in range(clusters):
        own = {k: v[cluster] if np.ndim(v) == 2 else v for k, v in operands.items()}
        name = b"".join(np.asarray(v).tobytes() for v in own.values())
        if name not in known:
            known[name] = op.compute(_in_lanes(own))
        rows.append(known[name])
    columns = (_signed(np.stack(column)) for column in zip(*rows, strict=True))
    # an opcode may have more results than are kept
    return tuple(
        column if fit is None else fit(column) for fit, column in zip(fits, columns, strict=False)
    )


def _in_lanes(operands: Mapping[int, Any]) -> Callable[[Expr], Any]:
    return lambda operand: np.broadcast_to(operands[id(operand)], 32)


def _signed(column: Any) -> Any:
    """Results as registers hold them: integers of Python where 64 bits with a sign do not do."""
    if column.dtype == np.uint64 and (column > np.iinfo(np.int64).max).any():
        return column.astype(object)
    return column.astype(np.int64)
