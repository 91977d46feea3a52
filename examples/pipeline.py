"""A TMA producer and four consumer warps that share two stages of shared memory."""

from tilesim import Builder, bf16, ds, kernel

STAGES, TILES, ROWS, COLUMNS = 2, 8, 64, 64


@kernel(warps=5)
def pipeline(k: Builder, *, fixed: bool = False) -> None:
    """Copies X (8 tiles of 64 x 64) to Y."""
    X = k.tensor("X", bf16, (TILES * ROWS, COLUMNS))
    Y = k.tensor("Y", bf16, (TILES * ROWS, COLUMNS))
    x_map = k.tensor_map(X, (ROWS, COLUMNS), swizzle=128)
    tile = k.shared("tile", bf16, (STAGES, ROWS, COLUMNS), swizzle=128)
    full, empty = k.mbarriers("full", STAGES), k.mbarriers("empty", STAGES)
    part = k.fragment("part", bf16, (ROWS // 4, COLUMNS))

    with k.one_thread():
        for stage in range(STAGES):
            k.mbarrier.init(full[stage], 1)
            k.mbarrier.init(empty[stage], 4)
    k.sync_threads()

    with k.role("producer", 4), k.elected(), k.loop(TILES) as i:
        slot = i % STAGES
        k.mbarrier.wait(empty[slot], ((i // STAGES) & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full[slot], x_map.box_bytes)
        k.tma.load(x_map, tile[slot], (i * ROWS, 0), full[slot])

    with k.role("consumer", range(4)), k.loop(TILES) as i:
        slot = i % STAGES
        phase = i // STAGES if fixed else i  # a stage is used every STAGES-th time
        k.mbarrier.wait(full[slot], phase & 1)
        rows = k.warp_id * (ROWS // 4)
        k.tile.load(part, tile[slot, ds(rows, ROWS // 4), :])
        k.tile.store(Y[ds(i * ROWS + rows, ROWS // 4), :], part)
        with k.elected():
            k.mbarrier.arrive(empty[slot])
