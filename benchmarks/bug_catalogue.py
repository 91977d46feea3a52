"""The bugs that the kernels of `tilesim.kernels.bugs` encode: title, family, where they were found.

`benchmarks/bugs.md` is made from this table and from the cases of the gallery, whose ``source``
names the entries here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """One entry: a real bug, or (``N...``) a correct idiom that a checker must not report.

    ``sources`` are ``owner/repository#thread``, ``owner/repository@commit`` or
    ``owner/repository:path``. ``remark`` says which part of the source has no encoding, and why.
    """

    name: str
    title: str
    sources: tuple[str, ...]
    remark: str = ""

    @property
    def links(self) -> tuple[str, ...]:
        """The sources as Markdown links to GitHub."""
        return tuple(_link(source) for source in self.sources)


def _link(source: str) -> str:
    for mark, part in (("#", "issues"), ("@", "commit"), (":", "blob/main")):
        repository, found, target = source.partition(mark)
        if found:
            return f"[{source}](https://github.com/{repository}/{part}/{target})"
    raise ValueError(f"{source!r} names no thread, commit or path")


_FUSER, _TILELANG, _TRITON = "NVIDIA/Fuser", "tile-ai/tilelang", "triton-lang/triton"
_META, _JAX, _CUTLASS = "facebookexperimental/triton", "jax-ml/jax", "NVIDIA/cutlass"
_FLASH, _GEMM = "Dao-AILab/flash-attention", "deepseek-ai/DeepGEMM"

FAMILIES: tuple[tuple[str, tuple[Bug, ...]], ...] = (
    (
        "Arrival counts and participation",
        (
            Bug("B001", "consumers open every slot twice", (f"{_FUSER}#5076",)),
            Bug(
                "B002",
                "a predicate lets idle warps fall into the compute branch",
                (f"{_FUSER}#5076",),
            ),
            Bug(
                "B003",
                "a contradictory predicate leaves a producer role dead",
                (f"{_FUSER}#5076", "cloudrift-ai/emmy#217"),
            ),
            Bug("B005", "one TMA load becomes two, the arrival count stays", (f"{_META}#972",)),
            Bug("B007", "dynamic grid shorter than the pipeline", (f"{_JAX}@3f708b0535",)),
            Bug("B008", "1-D bulk load expects bytes without arriving", (f"{_TILELANG}#2566",)),
            Bug(
                "B009",
                "tile number released before it is read, readers not all counted",
                (f"{_TILELANG}#2423", f"{_TILELANG}#2410"),
            ),
        ),
    ),
    (
        "Parity, phase and slot",
        (
            Bug("B012", "phase restarts with every output tile", (f"{_TILELANG}#2674",)),
            Bug(
                "B014",
                "parity from the enclosing loop, not from the barrier",
                (f"{_TILELANG}#2927",),
            ),
            Bug(
                "B016",
                "one rendezvous barrier for two CTAs, the follower runs ahead",
                (f"{_META}#3472",),
            ),
            Bug(
                "B017",
                "a cluster barrier of one mbarrier per CTA misses a phase",
                (f"{_TRITON}#10669",),
            ),
            Bug(
                "B018",
                "empty tiles break the contract of softmax, correction and MMA",
                (f"{_FLASH}#2258",),
            ),
            Bug("B020", "slot by subtile, phase by running count", (f"{_META}#1864",)),
            Bug("B022", "fewer stages than loads in flight", (f"{_FUSER}#5862",)),
            Bug("B024", "two asynchronous warps share a full barrier", (f"{_FUSER}#5076",)),
        ),
    ),
    (
        "Transaction bytes",
        (
            Bug("B026", "bytes of a broadcast dimension", (f"{_FUSER}#3088",)),
            Bug(
                "B027",
                "both CTAs' copies land on the leader's barrier, which expects one's",
                (f"{_FLASH}:AI/DEBUG_2CTA.md",),
            ),
            Bug(
                "B029",
                "bytes counted on the then-arm only",
                (f"{_TILELANG}#1908",),
                "the pass that injects the expectation; encoded is the code it makes",
            ),
            Bug(
                "B030",
                "bytes expected under a guard that selects several threads",
                (f"{_TILELANG}#1908",),
                "the pass that injects the expectation; encoded is the code it makes",
            ),
            Bug(
                "B031",
                "implicit arrival per copy made explicit, half of the callers migrated",
                ("NVIDIA/tilus#88",),
            ),
            Bug("B032", "storage size taken for logical size", ("NVIDIA/tilus#88",)),
            Bug("B034", "arrival without the expected bytes", (f"{_TILELANG}#241",)),
        ),
    ),
    (
        "Proxy fences",
        (
            Bug(
                "B035",
                "ordinary stores, then a TMA store, no fence",
                (
                    f"{_FUSER}#1967",
                    "HazyResearch/ThunderKittens@f74f9690",
                    "HazyResearch/ThunderKittens@51ec35eb",
                    f"{_META}#368",
                ),
            ),
            Bug(
                "B036",
                "ordinary reads, then the next TMA copy, no fence",
                (
                    f"{_TRITON}#7262",
                    f"{_TRITON}#7278",
                    "deepseek-ai/DeepEP#642",
                    "NVIDIA/TransformerEngine#2695",
                    f"{_FLASH}@d91ea94f",
                ),
            ),
            Bug("B038", "fence in a loop that may not run", ("MoonshotAI/FlashKDA#24",)),
            Bug("B040", "launch-control answer read, then overwritten", (f"{_META}#1723",)),
            Bug("B042", "fence after the barrier instead of before", (f"{_JAX}@cdae5fcfc7",)),
        ),
    ),
    (
        "tcgen05 order",
        (
            Bug(
                "B045",
                "no tcgen05 fences at mbarrier hand-overs",
                (f"{_TILELANG}#1980", f"{_TILELANG}#2003"),
            ),
            Bug("B047", "second part of P announced before wait::st", (f"{_FLASH}@e540fc1b",)),
            Bug(
                "B049",
                "a pair's operation issued before the peer's operands are there",
                (f"{_JAX}@16371553ee", f"{_JAX}@4acb04dee9", f"{_META}#1553"),
                "encoded for mma; the copy to tensor memory (jax 4acb04dee9) and the store to it "
                "(triton 1553) hand over in the same way",
            ),
        ),
    ),
    (
        "Tensor memory and shared-memory capacity",
        (
            Bug(
                "B050",
                "columns freed while other warps read them",
                (
                    f"{_TRITON}#7994",
                    f"{_FLASH}@dd8a2729",
                    "Dao-AILab/quack@14e9a0b",
                    f"{_GEMM}#292",
                ),
            ),
            Bug(
                "B051",
                "a pair's columns freed without a cluster rendezvous",
                (f"{_GEMM}#292", f"{_TRITON}#8874", f"{_JAX}@1ff8a65bba", f"{_META}#1707"),
            ),
            Bug(
                "B053",
                "address read without synchronisation if there is no tile",
                (f"{_CUTLASS}#2835",),
            ),
            Bug(
                "B054",
                "more columns than there are",
                (f"{_JAX}@ddc268126a", f"{_FUSER}#4152"),
                "columns that other CTAs of the SM hold: which CTAs share an SM is not modelled",
            ),
            Bug("B057", "reuse guard on a token never released", (f"{_META}#1851",)),
            Bug("B058", "reuse guard with a constant slot and phase", (f"{_META}#1853",)),
            Bug(
                "B059",
                "barrier storage reused without inval",
                (f"{_META}#462", f"{_TRITON}#10106", f"{_TRITON}#11120"),
            ),
            Bug("B061", "workspace aligned, total size computed unaligned", ("NVIDIA/tilus#158",)),
        ),
    ),
    (
        "Races on shared memory",
        (
            Bug(
                "B063",
                "one warpgroup's wait taken for everybody's",
                (f"{_TRITON}#11050", f"{_TRITON}#11047"),
            ),
            Bug(
                "B065",
                "operand of two warpgroups, no barrier at the loop's end",
                (f"{_TILELANG}#2613",),
            ),
            Bug("B067", "slot released between two reads", (f"{_META}#739",)),
            Bug("B069", "a pair's accumulator released in the own CTA", (f"{_JAX}@d0d662d299",)),
            Bug(
                "B071", "destination zeroed without order before the TMA copy", (f"{_FUSER}#3105",)
            ),
            Bug(
                "B073",
                "warps of a warpgroup start copies without waiting for each other",
                (f"{_JAX}@9a7f9f13ef", f"{_JAX}@58cce45843", f"{_JAX}@acd84d123b"),
            ),
        ),
    ),
    (
        "Bulk groups and cp.async",
        (
            Bug("B075", "bulk wait by the issuing threads only", (f"{_GEMM}@83aa960",)),
            Bug("B077", "cp.async wait that waits for nothing", (f"{_CUTLASS}#2502",)),
        ),
    ),
    (
        "Clusters: lifetime, addresses, scope",
        (
            Bug(
                "B081",
                "exit without a trailing cluster barrier",
                ("sgl-project/sglang#32907", "sgl-project/sglang#32954"),
                "the launch sequence of the report (dependent launches in a graph): one grid is "
                "simulated",
            ),
            Bug(
                "B082",
                "return while a peer still reads",
                (f"{_TRITON}#10656", f"{_TRITON}#11731", f"{_TRITON}#9413", f"{_META}#1105"),
            ),
            Bug(
                "B085",
                "mbarrier.init not fenced or not synchronised",
                (
                    f"{_CUTLASS}#2030",
                    f"{_TILELANG}#1121",
                    f"{_META}#1240",
                    f"{_FUSER}#1552",
                    f"{_FUSER}#1769",
                ),
            ),
            Bug("B086", "remote arrive lowered as a local one", (f"{_META}#1096",)),
            Bug("B088", "multicast mask names a CTA outside the cluster", (f"{_CUTLASS}#3658",)),
            Bug(
                "B089",
                "pair straddles two groups with different trip counts",
                (f"{_GEMM}#429", f"{_GEMM}@79f48ee", f"{_GEMM}@aff9da0"),
            ),
            Bug(
                "B090",
                "arrive of CTA scope hands over data of the cluster",
                ("Dao-AILab/quack#63", f"{_CUTLASS}#3324"),
            ),
        ),
    ),
    (
        "Named barriers and barriers of the CTA",
        (
            Bug(
                "B092",
                "arrive, arrive, then sync on one id",
                ("flashinfer-ai/flashinfer#4732", "flashinfer-ai/flashinfer#3700"),
            ),
            Bug("B094", "count 128 where 128 arrive and 128 wait", (f"{_META}#378",)),
            Bug(
                "B096",
                "__syncthreads reached by one role only",
                ("flashinfer-ai/flashinfer#2996", f"{_FUSER}#4187", f"{_TRITON}#9456"),
            ),
            Bug("B098", "bar.sync from different instructions", ("mlc-ai/TIRx-kernels#21",)),
            Bug(
                "B100", "mbarrier numbers of two allocation lists coincide", (f"{_TILELANG}#1908",)
            ),
            Bug("B101", "ids of named barriers from the size of a map", (f"{_TILELANG}#1908",)),
        ),
    ),
    (
        "Roles that disagree",
        (
            Bug("B103", "two of four roles do not unpack the split index", (f"{_FLASH}#2761",)),
            Bug("B105", "epilogue load waits although it has no tile", (f"{_CUTLASS}#2172",)),
            Bug("B108", "release behind the work that needs it", (f"{_TILELANG}#2567",)),
            Bug(
                "B109",
                "a role tails a pipeline it does not own",
                ("flashinfer-ai/flashinfer#3581",),
            ),
        ),
    ),
    (
        "Registers, bounds, other",
        (
            Bug(
                "B110",
                "setmaxnreg asks for more registers than there are",
                (f"{_TILELANG}#2406", f"{_CUTLASS}#2007", "pytorch/helion#3620"),
            ),
            Bug("B112", "occupancy hint contradicts setmaxnreg", (f"{_TILELANG}#2559",)),
            Bug(
                "B114",
                "bulk store of a full tile at the edge",
                (f"{_GEMM}@b0d6481", f"{_GEMM}@ca13ce0"),
            ),
            Bug("B115", "strided region copied as one contiguous range", (f"{_TILELANG}#1908",)),
            Bug("B116", "multicast mask ignored on one path", (f"{_TILELANG}#1908",)),
            Bug(
                "B117",
                "requests after a failed launch-control request",
                ("Dao-AILab/quack@58cb592",),
                "the spurious failure of the machine: the simulated machine answers truthfully, "
                "and further requests are reported whatever they would have cancelled",
            ),
        ),
    ),
)

#: correct idioms that other tools or readers took for bugs
CONTROLS: tuple[Bug, ...] = (
    Bug(
        "N1",
        "arrive by 128 threads and sync by 128 others with count 256",
        ("deepseek-ai/FlashMLA#57", "deepseek-ai/FlashMLA#41", f"{_FLASH}#1370"),
    ),
    Bug(
        "N3",
        "tcgen05 hand-over by mbarrier without tcgen05 fences",
        (f"{_CUTLASS}#2974",),
    ),
    Bug(
        "N5",
        "bulk copy and mbarrier, producer and consumer in different warps, dynamic loop",
        (f"{_FLASH}:AI/RACECHECK_TMA_HAZARD.md",),
    ),
    Bug("N7", "ordinary read of TMA data after the wait, no proxy fence", (f"{_FUSER}#3136",)),
    Bug("N9", "two copies on one barrier, one expectation", (f"{_TRITON}#9046",)),
    Bug("N11", "two asynchronous warps on one barrier of count 2", (f"{_FUSER}#5076",)),
)

BUGS: tuple[Bug, ...] = tuple(bug for _, bugs in FAMILIES for bug in bugs)
