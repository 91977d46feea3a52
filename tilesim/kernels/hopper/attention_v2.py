"""Flash attention of sequences of different lengths, without padding.

What this step adds to `attention_v1`: the sequences of a batch lie one behind the other, and the
host passes where each ends. Its numbers of tiles and of blocks of keys are computed by the kernel,
so one compiled kernel serves all batches with as many sequences.

A sequence's last block of keys reaches into the next sequence, whose keys are hidden; it is only
the weights that are zero, so its values must be finite. Its last tile of queries does as well, and
the result must not: what is left of a tile of 64 rows leaves in copies of eight rows and of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.errors import UsageError
from tilesim.ir.declarations import TensorMap, View, ds
from tilesim.ir.expr import Expr, maximum
from tilesim.kernels.attention import attention_weights
from tilesim.kernels.hopper.attention_tiles import Ragged, Tile
from tilesim.kernels.hopper.attention_v1 import (
    REGISTERS,
    ROWS,
    WARPS,
    Consumer,
    Cta,
    check_sizes,
    inputs,
    tensor_maps,
)
from tilesim.kernels.hopper.matmul_v7 import PIECE
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case

#: rows of the copies that a rest of a tile leaves by
RESTS = (8, 1)
#: as `REGISTERS`: the producer's threads know more of a tile
MORE = {2: (168, 40, 232)}


class CutConsumer(Consumer):
    """A consumer whose result ends with its sequence."""

    def __init__(self, k: Builder, block: int, depth: int, o_map: TensorMap) -> None:
        super().__init__(k, block, depth, o_map)
        self.rests = [
            k.tensor_map(o_map.tensor, (1, rows, PIECE), swizzle=128, name=f"O_map{rows}")
            for rows in RESTS
        ]

    def copy_out(self, sO: View, tile: Tile, row: Expr) -> None:
        """Copies the rows of the result that belong to the sequence."""
        k = self.k
        assert tile.end is not None
        left = tile.end - row
        with k.if_(left >= ROWS):
            super().copy_out(sO, tile, row)
        with k.else_():
            left = maximum(left, 0)
            done: Expr | int = 0
            for rows, o_map in zip(RESTS, self.rests, strict=True):
                whole = left // rows * rows
                with k.loop(done, whole, rows, name="at") as at:
                    for piece in range(sO.shape[0]):
                        part = sO[piece, ds(at, rows)]
                        k.tma.store(o_map, part, (tile.head, row + at, PIECE * piece))
                done = whole


def ends_of(name: str, sequences: int, rows: int, params: Mapping[str, Any]) -> list[int]:
    """The row behind each sequence: as passed, or of sequences of about equal length."""
    return [params.get(f"{name}{i}", rows * (i + 1) // sequences) for i in range(sequences)]


def of_each(given: Arrays, **params: Any) -> Iterator[Arrays]:
    """The rows of each sequence."""
    first = last = 0
    sequences = params["sequences"]
    ends = ends_of("end", sequences, params["queries"], params)
    key_ends = ends_of("key_end", sequences, params["keys"], params)
    for end, key_end in zip(ends, key_ends, strict=True):
        rows = {"Q": slice(first, end), "K": slice(last, key_end), "V": slice(last, key_end)}
        yield {name: given[name][:, rows.get(name, rows["Q"])] for name in given}
        first, last = end, key_end


def ragged_reference(given: Arrays, **params: Any) -> Arrays:
    """Attention within each sequence, in f64 and rounded once; rows of none stay zero."""
    out = np.zeros_like(given["Q"])
    for rows in of_each({**given, "O": out}, **params):
        if rows["Q"].size:
            forms = {name: params[name] for name in ("causal", "grouped")}
            exact = attention_weights(rows, params["heads"], **forms)
            rows["O"][:] = (exact["W"] @ exact["V"]).astype(out.dtype)
    return {"O": out}


@kernel(warps=WARPS * 3, family="hopper", reference=ragged_reference, inputs=inputs)
def attention(
    k: Builder,
    *,
    sequences: int = 3,
    queries: int = 456,
    keys: int = 600,
    heads: int = 2,
    depth: int = 64,
    block: int = 128,
    consumers: int = 2,
    stages: int = 2,
    ctas: int = 2,
    causal: bool = False,
    grouped: int = 1,
    in_place: bool = False,
) -> None:
    """O = softmax(Q @ K.T / sqrt(depth)) @ V within each of ``sequences`` sequences.

    Q and O are (heads, ``queries``, depth), K and V have ``keys`` rows. The host passes ``end0``,
    ``end1``... and ``key_end0``...: the rows behind the queries and keys of each sequence. None may
    be smaller than the one before; where there are queries there must be keys, and as many with
    ``causal``: the last query sees all keys, the one before it all but one. The other parameters
    are those of `attention_v1`.
    """
    check_sizes(heads=heads, depth=depth, block=block, consumers=consumers, grouped=grouped)
    if sequences < 1:
        raise UsageError(f"{sequences=} must be at least 1")
    ends, key_ends = (
        [k.scalar(f"{name}{i}", end) for i, end in enumerate(ends_of(name, sequences, rows, {}))]
        for name, rows in (("end", queries), ("key_end", keys))
    )
    schedule = Ragged(k, ctas, heads, ROWS * consumers, block, causal, ends, key_ends)
    *maps, o_map = tensor_maps(k, heads, queries, keys, depth=depth, block=block, grouped=grouped)
    Cta(
        k, CutConsumer(k, block, depth, o_map), maps,
        consumers=consumers, stages=stages, grouped=grouped, causal=causal, in_place=in_place,
    ).run(schedule, MORE.get(consumers, REGISTERS[consumers]))  # fmt: skip


CASES = tuple(
    Case(attention, params, "hopper", "proved")
    for params in (
        {},
        {"heads": 4, "grouped": 2, "end0": 72, "end1": 72, "key_end0": 13, "key_end1": 141},
        {"causal": True, "end0": 133, "end1": 144, "key_end0": 133, "key_end1": 272, "ctas": 3},
        {"sequences": 2, "queries": 270, "keys": 270, "end0": 13, "end1": 203, "key_end1": 264,
         "depth": 256, "block": 80, "in_place": True},
    )
)  # fmt: skip
