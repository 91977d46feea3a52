"""Rules of warps: participation, named barriers, registers, and what is not modelled."""

from __future__ import annotations

from tilesim.findings.rule import BARRIER, REGISTERS, WGMMA, RuleDoc, source, swap

_PARTICIPATION = source(
    """
    @ts.kernel(warps=2)
    def divergent(k):
        with k.if_(k.lane_id < 16):
            k.sync_threads()  # half of each warp
    """
)

_NAMED = source(
    """
    @ts.kernel(warps=3)
    def counts(k):
        with k.role("producer", 0):
            k.bar.arrive(1, 64, aligned=False)
        with k.role("consumer", [1, 2]):
            k.bar.sync(1, 96, aligned=False)
    """
)

_REGISTERS = source(
    """
    @ts.kernel(warps=8)
    def greedy(k):
        k.launch(registers=128)
        with k.role("producer", range(4)):
            k.setmaxnreg("dec", 40)
        with k.role("consumer", range(4, 8)):
            k.setmaxnreg("inc", 232)  # 40 + 232 is more than 2 * 128
    """
)

_UNSUPPORTED = source(
    """
    @ts.kernel(warps=1)
    def swizzled(k):
        X = k.tensor("X", ts.f16, (64, 64))
        tile = k.shared("tile", ts.f16, (64, 64), swizzle=128)
        full = k.mbarriers("full")
        with k.one_thread():
            k.mbarrier.init(full, 1)
            k.mbarrier.arrive_expect_tx(full, tile.nbytes)
            k.bulk.load(tile, X, full)
        k.sync_threads()
        k.mbarrier.wait(full, 0)
    """
)

DOCS = (
    RuleDoc(
        "participation",
        "An instruction that a whole warp or warpgroup executes together was executed by a part "
        "of it.",
        "`bar.*`, `barrier.cluster.*` and all that has a mask of lanes (`shfl.sync`, `vote.sync`, "
        "`match.sync`, `redux.sync`, `elect.sync`, `bar.warp.sync`) need every lane they name "
        "that has not exited. `wgmma` and `setmaxnreg` need all four warps of a warpgroup (warps "
        "4g to 4g+3), with the same operands. Tile operations, `mma.sync`, `ldmatrix` and "
        "accesses to tensor memory need all 32 lanes of a warp. A shuffle reads from lanes that "
        "execute it. Usual causes: lanes that branched away or have exited; a role with three "
        "warps of a warpgroup; a padding warp in the wrong branch. An instruction is known by its "
        "place in the program: two "
        "roles that execute two, be it through one helper, do not execute the same one. Between "
        "two `setmaxnreg` the warps of the warpgroup synchronise.",
        (BARRIER, WGMMA, REGISTERS),
        ("D3", "E2", "E8", "E11", "E15", "F1", "F10", "G4", "G13", "U16", "U22", "U30"),
        "Execute it outside the divergent region, in every warp of the warpgroup.",
        _PARTICIPATION,
        swap(_PARTICIPATION, ("    with k.if_(k.lane_id < 16):\n"
                              "        k.sync_threads()  # half of each warp\n",
                              "    k.sync_threads()\n")),
    ),
    RuleDoc(
        "named-barrier",
        "The participants of one round of a named barrier differ in id, thread count or order.",
        "There are 16 barriers per CTA, ids 0 to 15; `__syncthreads` is id 0 with all threads. "
        "All participants of a round give the same thread count, a multiple of 32. A warp that is "
        "in a round must not join it again before the round is over. `barrier.red` must not be "
        "mixed with the other forms. If another warp may join a round instead of a participant, "
        "the check reports that, too.",
        (BARRIER,),
        ("E1", "E5", "E6", "E7", "E9", "U18"),
        "One id per set of warps, one count, each warp once per round.",
        _NAMED,
        swap(_NAMED, ("k.bar.arrive(1, 64", "k.bar.arrive(1, 96")),
    ),
    RuleDoc(
        "register-pool",
        "setmaxnreg asks for registers that the CTA does not have, or in the wrong direction.",
        "The registers of a CTA are fixed at launch. `setmaxnreg.dec` returns some to the CTA's "
        "pool, `inc` blocks until the pool holds what it wants. If the sum over all warps after "
        "setmaxnreg exceeds the registers at launch, an `inc` blocks for ever; so it does if the "
        "`dec` it needs comes after something that the blocked warps must do. Counts are multiples "
        "of 8 in 24..256; `dec` may not raise and `inc` may not lower the count.",
        (REGISTERS,),
        ("E13", "E14", "E17", "E18", "U23"),
        "Choose counts with registers(all warps after) <= registers(at launch), `dec` first.",
        _REGISTERS,
        swap(_REGISTERS, ('"inc", 232)  # 40 + 232 is more than 2 * 128',
                          '"inc", 216)  # 40 + 216 is 2 * 128')),
    ),
    RuleDoc(
        "unsupported",
        "The simulator does not model this, so it gives no verdict on the kernel.",
        "Nothing is said about the kernel beyond what was found before this point; the exit code "
        "is 3, never 0. The finding names the construct and its line. One case is a bulk copy "
        "without a tensor map to or from a swizzled tile: it moves bytes as they lie.",
        ("cp.async.bulk",),
        ("B6",),
        "Write the construct in another way, for example as a copy through a tensor map.",
        _UNSUPPORTED,
        swap(_UNSUPPORTED, (", swizzle=128)", ")")),
    ),
)  # fmt: skip
