"""Where the operands of tcgen05 lie in tensor memory (PTX 9.7.16.10.5-8; SEMANTICS G12, G14).

The figures of the text are those of CuTe's layouts (`cute/atom/mma_traits_sm100_frag.hpp`); tests
compare the two.
"""

from __future__ import annotations

from typing import Literal

from tilesim.ir.tmem import CELL, LANES, TmemLayout, TmemPart, TmemView

LoadShape = Literal["32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"]
CopyShape = Literal["128x256b", "4x256b", "128x128b", "64x128b", "32x128b"]
CopyMulticast = Literal["warpx2::02_13", "warpx2::01_23", "warpx4"]

#: lanes of a warp, which hold one quarter of tensor memory
QUARTER = 32
_HALF_QUARTER = 16


def matrix(
    view: TmemView, rows: int, folds: int, *, scattered: bool, beside: TmemView | None = None
) -> TmemLayout:
    """D or A of a product: rows below each other, in ``folds`` groups of lanes, or ``scattered``
    over 16 lanes of every quarter."""
    if scattered:
        parts = tuple(
            TmemPart(QUARTER * i, _HALF_QUARTER, view.columns) for i in range(rows // _HALF_QUARTER)
        )
        return TmemLayout(parts, (0, _HALF_QUARTER), beside)
    parts = tuple(TmemPart(rows * i, rows, view.columns) for i in range(folds))
    return TmemLayout(parts, (0,))


def scales(rows: int, folds: int) -> TmemLayout:
    """The scale factors of ``rows`` rows: a column per 32 rows of a fold, in all four quarters.

    The first 4 / folds parts hold those of the first fold, and so on.
    """
    columns = -(-rows // folds // QUARTER)
    return TmemLayout(tuple(TmemPart(QUARTER * i, QUARTER, columns) for i in range(4)))


def metadata(view: TmemView) -> TmemLayout:
    """The sparsity metadata of one instruction."""
    return TmemLayout((TmemPart(0, LANES, view.columns),), step=view.columns)


def copied(view: TmemView, shape: CopyShape, multicast: CopyMulticast | None) -> TmemLayout:
    """What a tcgen05.cp writes: its rows, as often as it repeats them (`copied_rows`)."""
    if shape == "4x256b":
        lanes, count = [QUARTER * i for i in range(4)], 1
    elif multicast is None:
        lanes, count = [0], view.shape[0]
    else:
        lanes, count = [QUARTER * i for i in range(4)], QUARTER
    return TmemLayout(tuple(TmemPart(lane, count, view.columns) for lane in lanes))


def copied_rows(rows: int, multicast: CopyMulticast | None) -> list[int]:
    """The row that each lane of `copied` gets."""
    match multicast:
        case None:
            return list(range(rows))
        case "warpx4":
            first = [0, 0, 0, 0]
        case "warpx2::02_13":
            first = [0, QUARTER, 0, QUARTER]
        case "warpx2::01_23":
            first = [0, 0, QUARTER, QUARTER]
    return [start + i for start in first for i in range(QUARTER)]


def shifted(view: TmemView) -> TmemLayout:
    """What a tcgen05.shift moves: 32 lanes of one quarter."""
    starts = tuple(range(0, LANES, QUARTER))
    return TmemLayout((TmemPart(0, QUARTER, view.columns),), starts)


def loaded(view: TmemView, shape: LoadShape, half_split: int) -> TmemLayout:
    """What a tcgen05.ld or st of a warp accesses: its own lanes only, once or twice (G12)."""
    lanes, columns = view.shape[0], view.columns
    parts = [TmemPart(0, lanes, columns)]
    if shape == "16x32bx2":
        parts.append(TmemPart(0, lanes, columns, half_split))
    return TmemLayout(tuple(parts), own=True)


def lane_mask(words: tuple[int, ...]) -> int:
    """The lanes of a CTA that ``disable-output-lane`` leaves out."""
    return sum(word << CELL * i for i, word in enumerate(words[: LANES // CELL]))
