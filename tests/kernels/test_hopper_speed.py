"""Steps 7 and 8 of the Hopper matmul: what breaks when a part of them is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilesim.checker import check
from tilesim.errors import UsageError
from tilesim.ir.expr import Const
from tilesim.ir.ops.mbarrier import MbarrierWait
from tilesim.ir.program import Strict
from tilesim.kernels.hopper import matmul_v7, matmul_v8
from tilesim.sim.machine.simulate import simulate

from .evidence import finding, participating
from .mutate import changed, edited, inputs, line, without

# ------------------------------------------------------------------ v7: pieces, bands


@pytest.mark.parametrize("band", [1, 2, 4])
def test_v7_computes_every_tile_once_whatever_the_band(band: int) -> None:
    params = {"band": band, "depth": 64, "block_n": 64}
    program = matmul_v7.matmul.build(**params)
    given = inputs(matmul_v7.matmul, program, params)
    assert matmul_v7.matmul.reference is not None
    run = simulate(program, given)
    expected = matmul_v7.matmul.reference(given, **params)["C"]
    np.testing.assert_array_equal(run.outputs["C"], expected)


def test_v7_that_waits_for_too_few_stores_overwrites_a_piece_that_is_being_read() -> None:
    race = finding(
        changed(matmul_v7.matmul.build(), "cp.async.bulk.wait_group", 0, pending=2), "race"
    )
    assert participating(race) == [
        line(matmul_v7.matmul, "k.tile.store(piece"),
        line(matmul_v7.matmul, "k.tma.store(c_map"),
    ]


def test_v7_without_the_barrier_before_a_piece_is_written_overwrites_it_too_early() -> None:
    race = finding(without(matmul_v7.matmul.build(pieces=1), "barrier.sync", 3), "race")
    assert line(matmul_v7.matmul, "k.tile.store(piece") in participating(race)


def test_v7_without_the_proxy_fence_stores_stale_bytes() -> None:
    found = finding(without(matmul_v7.matmul.build(), "fence.proxy.async"), "proxy-fence")
    assert participating(found) == [
        line(matmul_v7.matmul, "k.tma.store(c_map"),
        line(matmul_v7.matmul, "k.tile.store(piece"),
    ]


def test_v7_that_stages_the_wrong_columns_gives_a_wrong_result() -> None:
    wrong = changed(matmul_v7.matmul.build(), "tile.store", 1, column=0)
    given = inputs(matmul_v7.matmul, wrong, {})
    assert matmul_v7.matmul.reference is not None
    expected = matmul_v7.matmul.reference(given)["C"]
    differs = simulate(wrong, given).outputs["C"] != expected
    # consumer 0 stages columns 64 to 127 of the first 64 rows of every tile
    assert np.any(differs[0:64, 64:128])
    assert not np.any(differs[64:128])
    assert not np.any(differs[:, 0:64])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"band": 3}, "m=512 is not a positive multiple of the block size 384"),
        ({"block_n": 32}, "block_n=32 is not a positive multiple of the block size 64"),
    ],
)
def test_v7_refuses_sizes_it_does_not_cover(params: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        matmul_v7.matmul.build(**params)


# ------------------------------------------------------------------ v8: clusters


def test_v8_with_releases_at_cta_scope_holds_in_practice_but_not_by_ptx() -> None:
    program = matmul_v8.matmul.build(handover="cta")
    assert check(program).verdict == "proved"
    race = finding(program, "race", "ptx")
    assert "cp.async.bulk.tensor.load" in race.message
    assert participating(race)[0] == line(matmul_v8.matmul, "k.tma.load(b_map")


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_v8_hands_over_shared_memory_by_a_restricted_fence(strict: Strict) -> None:
    program = matmul_v8.matmul.build()
    assert check(program, strict=strict).verdict == "proved"
    race = finding(without(program, "fence.sync_restrict", 0), "race", strict)
    assert participating(race)[0] == line(matmul_v8.matmul, "k.tma.load(b_map")


def test_v8_whose_producer_does_not_ask_the_peer_overwrites_its_stages() -> None:
    def of_peer(wait: MbarrierWait) -> Any:
        return None if wait.mbar.array.name == "peer_empty" else wait

    race = finding(edited(matmul_v8.matmul.build(), "mbarrier.wait", of_peer), "race")
    assert line(matmul_v8.matmul, "k.tma.load(b_map") in participating(race)


def test_v8_whose_courier_does_not_wait_tells_the_peer_too_early() -> None:
    program = without(matmul_v8.matmul.build(), "mbarrier.wait", 2)
    assert check(program).verdict == "failed"


def test_v8_without_a_courier_deadlocks() -> None:
    program = without(matmul_v8.matmul.build(), "mbarrier.arrive", 0)
    deadlock = finding(program, "deadlock")
    assert line(matmul_v8.matmul, "k.mbarrier.wait(peer_empty") in participating(deadlock)


def test_v8_that_expects_only_what_its_own_cta_loads_reads_too_early() -> None:
    own = (128 + 64) * 64 * 2
    program = changed(matmul_v8.matmul.build(), "mbarrier.arrive.expect_tx", bytes=Const(own))
    assert check(program).verdict == "failed"


def test_v8_without_the_multicast_waits_for_bytes_that_nobody_sends() -> None:
    program = edited(
        matmul_v8.matmul.build(),
        "cp.async.bulk.tensor.load",
        lambda load: replace(load, multicast=None),
    )
    deadlock = finding(program, "deadlock")
    assert {"consumer0", "consumer1"} <= set(deadlock.roles)
