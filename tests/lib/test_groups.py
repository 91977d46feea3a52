"""Tiles of groups of rows: every tile of every group by one CTA, whatever the groups' heights."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

import tilesim as ts
from tilesim.ir.expr import Operand
from tilesim.lib import Grouped
from tilesim.sim.machine.simulate import simulate

_FIELDS = 6


def listed(groups: int, height: int, across: int, ctas: int, most: int) -> ts.Program:
    """Every CTA writes down what it is told of its tiles, ``most`` of them at most."""
    k = ts.Builder("listed", warps=1)
    k.launch(grid=ctas)
    ends = k.tensor("ends", ts.s32, (groups,))
    out = k.tensor("out", ts.s32, (ctas, most, _FIELDS))
    tiles = Grouped(k, ends, height, across, ctas, width=2)
    with k.one_thread(), tiles.each("list") as tile:
        told: list[Operand] = [tile.group, tile.row, tile.column, tile.begin, tile.end, 1]
        for number, value in enumerate(told):
            k.mem.store(out[k.cta_x, tile.turn, number], value)
    return k.finish()


@pytest.mark.filterwarnings("error")  # lanes that do not take part divide by what they hold: 0
@pytest.mark.parametrize("seed", range(6))
def test_every_tile_of_every_group_is_one_ctas(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([0, 1, 4, 5, 9, 12]) for _ in range(rng.randrange(1, 6))]
    height, across, ctas = rng.choice([1, 4, 5]), rng.randrange(1, 4), rng.randrange(1, 6)
    ends = np.cumsum(sizes, dtype=np.int32)
    rows = [-(-size // height) for size in sizes]
    count = sum(rows) * across
    most = max(1, -(-count // ctas))
    program = listed(len(sizes), height, across, ctas, most)
    out = simulate(program, {"ends": ends}).outputs["out"]
    told = [tuple(tile[:-1]) for tile in out.reshape(-1, _FIELDS) if tile[-1]]
    expected = Counter(
        (group, row, column, ends[group] - size, ends[group])
        for group, size in enumerate(sizes)
        for row in range(rows[group])
        for column in range(across)
    )
    assert Counter(told) == expected
    per_cta = out[:, :, -1].sum(axis=1)
    assert per_cta.max() - per_cta.min() <= 1
    assert all(list(tiles) == sorted(tiles, reverse=True) for tiles in out[:, :, -1]), "turns count"
