"""What an instruction computes of its operands, in all clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilesim.ir.expr import Expr
from tilesim.ir.op import Computation
from tilesim.sim.expression import Fit, plain


def computed(
    op: Computation, fits: Sequence[Fit | None], operands: Mapping[int, Any], clusters: int
) -> tuple[Any, ...]:
    """The registers that it sets, each (clusters, 32), brought into their types by ``fits``.

    ``operands``: by the identity of the expression its value, or one per cluster. Clusters with the
    same operands are computed once.
    """
    at_once = op.compute_many(lambda operand: operands[id(operand)])
    if at_once is not None:
        return tuple(_fitted(result, fit) for fit, result in zip(fits, at_once, strict=False))
    operands = {k: plain(v) for k, v in operands.items()}
    known: dict[bytes, tuple[Any, ...]] = {}
    rows: list[tuple[Any, ...]] = []
    for cluster in range(clusters):
        own = {k: v[cluster] if np.ndim(v) == 2 else v for k, v in operands.items()}
        name = b"".join(np.asarray(v).tobytes() for v in own.values())
        if name not in known:
            known[name] = op.compute(_in_lanes(own))
        rows.append(known[name])
    columns = (np.stack(column) for column in zip(*rows, strict=True))
    # an opcode may have more results than are kept
    return tuple(_fitted(column, fit) for fit, column in zip(fits, columns, strict=False))


def _fitted(result: Any, fit: Fit | None) -> Any:
    if isinstance(result, np.ndarray):
        result = _signed(result)
    return result if fit is None else fit(result)


def _in_lanes(operands: Mapping[int, Any]) -> Callable[[Expr], Any]:
    return lambda operand: np.broadcast_to(operands[id(operand)], 32)


def _signed(column: Any) -> Any:
    """Results as registers hold them: integers of Python where 64 bits with a sign do not do."""
    if column.dtype == np.uint64 and (column > np.iinfo(np.int64).max).any():
        return column.astype(object)
    return column.astype(np.int64)
