"""Where the operands of tcgen05.mma lie in tensor memory (PTX 9.7.16.10.5-8; SEMANTICS G14).

The figures of the text are those of CuTe's layouts (`cute/atom/mma_traits_sm100_frag.hpp`); tests
compare the two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.ops.tcgen05 import Tcgen05Mma, Tcgen05MmaSp, Tcgen05Product
from tilesim.ir.tmem import LANES
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.tmem import Cells, Tmem

#: lanes of a warp, which hold one quarter of tensor memory
_QUARTER = 32
_HALF_QUARTER = 16
_FIX = "compute the address from the one that tcgen05.alloc wrote"


class Piece(NamedTuple):
    """Rows and columns of D in one CTA that lie in ``rows`` lanes from ``lane`` on."""

    row: int
    rows: int
    column: int
    columns: int
    lane: int


def d_pieces(op: Tcgen05Product) -> list[Piece]:
    """How the part of D in one CTA lies in its lanes, relative to the address."""
    n = op.shape[1]
    if op.scattered:
        return [
            Piece(_HALF_QUARTER * i, _HALF_QUARTER, 0, n, _QUARTER * i)
            for i in range(op.rows // _HALF_QUARTER)
        ]
    part = n // op.folds
    return [Piece(0, op.rows, part * i, part, op.rows * i) for i in range(op.folds)]


class Accumulator:
    """The lanes of D that an instruction updates: all but those that its mask disables."""

    def __init__(self, op: Tcgen05Product) -> None:
        self._op = op
        words = getattr(op, "disable_output_lane", ())
        self._disabled = sum(word << _QUARTER * i for i, word in enumerate(words[:4]))
        self._by_lane: dict[int, list[Piece]] = {}

    def pieces(self, lane: int) -> list[Piece]:
        """What is updated if D is at this lane; `BarrierError` if it cannot be there."""
        known = self._by_lane.get(lane)
        if known is None:
            _check_lane(self._op, self._op.d.name, lane)
            known = self._by_lane[lane] = [
                part for piece in d_pieces(self._op) for part in self._enabled(piece, lane)
            ]
        return known

    def boxes(self, tmem: Tmem, at: tuple[int, int]) -> list[Cells]:
        """The cells of `pieces` for D at (lane, column)."""
        wide = self._op.d.columns
        return [tmem.box(at[0] + p.lane, p.rows, at[1], wide) for p in self.pieces(at[0])]

    def _enabled(self, piece: Piece, lane: int) -> list[Piece]:
        """The runs of lanes of a piece that are not disabled."""
        if not self._disabled:
            return [piece]
        runs: list[Piece] = []
        for i in range(piece.rows):
            if self._disabled >> (lane + piece.lane + i) & 1:
                continue
            last = runs[-1] if runs else None
            if last is not None and last.row + last.rows == piece.row + i:
                runs[-1] = last._replace(rows=last.rows + 1)
            else:
                runs.append(piece._replace(row=piece.row + i, rows=1, lane=piece.lane + i))
        return runs


def _check_lane(op: Tcgen05Product, name: str, lane: int) -> None:
    allowed = (0, _HALF_QUARTER) if op.scattered else (0,)
    if lane not in allowed:
        raise BarrierError(
            "out-of-bounds",
            f"{name} of {op.mnemonic} starts at lane {lane}, with {op.rows} rows it can start at "
            f"lane {' or '.join(map(str, allowed))} (G14)",
            _FIX,
        )


def a_copies(
    tmem: Tmem, op: Tcgen05Product, at: tuple[int, int], columns: int, d_lane: int
) -> list[list[Cells]]:
    """A in tensor memory: for each fold of D's columns, the boxes that hold its rows in order."""
    lane, column = at
    _check_lane(op, "A", lane)
    if not op.scattered:
        return [[tmem.box(lane + op.rows * i, op.rows, column, columns)] for i in range(op.folds)]
    if lane != d_lane:
        raise BarrierError(
            "out-of-bounds",
            f"A of {op.mnemonic} starts at lane {lane} and D at lane {d_lane}: with 64 rows both "
            "use the same half of the lanes (G14)",
            "put A and D at the same lane",
        )
    return [[tmem.box(lane + p.lane, p.rows, column, columns) for p in d_pieces(op)]]


def scale_boxes(
    tmem: Tmem, op: Tcgen05Mma, at: tuple[int, int], rows: int, folds: int
) -> list[Cells]:
    """The scale factors of ``rows`` rows: a column per 32 rows of a fold, in all four quarters.

    The first 4 / folds boxes hold those of the first fold, and so on.
    """
    columns = -(-rows // folds // _QUARTER)
    return [tmem.box(at[0] + _QUARTER * i, _QUARTER, at[1], columns) for i in range(4)]


def metadata_box(tmem: Tmem, op: Tcgen05MmaSp, at: tuple[int, int]) -> Cells:
    """The sparsity metadata of one instruction."""
    columns = op.metadata.columns
    if at[1] % columns:
        raise BarrierError(
            "out-of-bounds",
            f"the metadata {op.metadata.name} of {op.mnemonic}.kind::{op.kind} starts at column "
            f"{at[1]}: its {columns} columns start at an even one (PTX 9.7.16.10.8.4)",
            _FIX,
        )
    return tmem.box(at[0], LANES, at[1], columns)


def metadata_of_rows(words: NDArray[np.uint32], rows: int) -> NDArray[np.uint8]:
    """The 4-bit fields of every row in the order of K, from (128, columns) words."""
    row = np.arange(rows)
    count = 8
    fields: NDArray[Any] = words[:rows]
    if words.shape[1] == 1:
        count, lane = 4, row // 16 * 16 + row % 8
        halves = np.stack([words[lane, 0], words[lane + 8, 0]], axis=1)
        fields = halves >> (row % 16 // 8 * 16)[:, None].astype(np.uint32) & np.uint32(0xFFFF)
    shifts = np.arange(count, dtype=np.uint32) * np.uint32(4)
    nibbles: NDArray[np.uint32] = fields[:, :, None] >> shifts & np.uint32(15)
    return nibbles.reshape(rows, -1).astype(np.uint8)
