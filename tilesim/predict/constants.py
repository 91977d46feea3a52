"""What a GPU takes for what: measured constants, and where they come from.

Times are in cycles of the SM clock, sizes in bytes.
"""

from __future__ import annotations

from tilesim.errors import UsageError
from tilesim.records import dataclass


@dataclass(frozen=True)
class Constants:
    """One GPU. ``source`` says on what and when `benchmarks.calibration` measured it; behind each
    constant is the probe that gives it."""

    name: str
    source: str
    targets: tuple[str, ...]
    multiprocessors: int = 132

    # issuing: what the warp spends
    issue: float = 4  #: any instruction that is not named below
    wait: float = 24  #: an mbarrier.wait that passes at once ("waits")
    arrive: float = 30  #: ("waits")
    expect: float = 30
    fence: float = 33  #: fence.proxy.async ("waits")
    copy: float = 30  #: to issue a bulk copy ("stream", small boxes)
    barrier: float = 23  #: barrier.sync ("barriers")
    #: from an arrival to the end of a wait that sleeps ("ping_pong"), and across CTAs
    wake: float = 110
    far: float = 250  #: ("far_ping_pong")
    cluster_barrier: float = 175  #: ("cluster_barriers")
    #: mbarrier.arrive.release.cluster to another CTA: MEMBAR.ALL.GPU, 306 alone ("waits"), most of
    #: a microsecond while copies are under way (benchmarks/speed.md)
    release_cluster: float = 1400
    setmaxnreg: float = 60

    # the tensor core ("products")
    mma_per_column: float = 0.5  #: wgmma m64nNk32B: cycles per column of the result
    mma_wait: float = 50  #: from the last product to the end of wgmma.wait_group
    mma_issue: float = 16

    # shared memory, per SM
    shared: float = 128  #: bytes per cycle: operands of wgmma ("products" n 8 to 64), copies
    shared_stores: float = 114  #: st.shared without bank conflicts ("tile swizzled")
    shared_conflicts: float = 16  #: with rows that all lie in the same banks ("tile plain")

    # copies
    load_latency: float = 350  #: to the end of the wait, from the L2 cache ("stream", 1 CTA)
    crowd_latency: float = 500  #: and as much more while all SMs copy so much: bytes per cycle
    crowd_rate: float = 6400  #: ("stream" across, 4 stages)
    miss_latency: float = 300  #: and as much more from memory ("copy_latency", first launch)
    load_rate: float = 107  #: bytes per cycle of one SM ("stream" 1 CTA)
    store_latency: float = 44  #: until the source may be written ("store_latency")
    store_rate: float = 32
    ld_latency: float = 550
    ld_rate: float = 30  #: ld.global and st.global of fragments, per SM ("tile global", "load")
    st_rate: float = 1640  #: st.global of fragments, all SMs ("tile global", 132 CTAs)
    l2_rate: float = 9250  #: bytes per cycle of all SMs from the L2 cache ("stream" across)
    memory_rate: float = 2366  #: from memory ("stream" of 2 GiB)

    # arithmetic: cycles per element of a thread, on its quarter of the SM ("tile": exp 8, element
    # 1 to 1.2, maximum 2 to 3, total 1.4 to 2, cast at most 4 alone; more beside wgmma)
    element: float = 1.3
    exp: float = 9.0
    maximum: float = 3.0
    total: float = 2.0
    tile: float = 25  #: and for the whole tile, until the next instruction can use it
    cast: float = 2.0
    shuffles: float = 50  #: the end of a row reduction

    # launches
    launch_ns: float = 1600  #: a launch in a graph, less what its CTAs execute ("launches")
    next_cta: float = 420  #: from the end of a CTA to the start of the next ("waves")

    # the SM clock under load, in MHz: the GPU is at its power limit. Fitted by least squares to the
    # GEMMs of 2048^3 and 4096^3 in benchmarks/calibration; the probe "load" is faster, because
    # its operands stay the same
    clock_least: float = 1200
    clock_most: float = 1900
    clock_idle: float = 2432
    clock_duty: float = 712  #: less by so much while all tensor cores multiply
    clock_rate: float = 9.4  #: less by so much per byte and cycle that copies bring to each SM
    #: nine of ten kernels of that page take between so many times the prediction
    low: float = 0.88
    high: float = 1.2

    def megahertz(self, duty: float, rate: float) -> float:
        """The SM clock where all tensor cores are busy for ``duty`` of the time and copies
        bring ``rate`` bytes per cycle to each SM."""
        found = self.clock_idle - self.clock_duty * duty - self.clock_rate * rate
        return min(self.clock_most, max(self.clock_least, found))


H200 = Constants(
    "H200",
    "NVIDIA H200, driver 580.159, CUDA 13.0, 2026-11-22, python -m benchmarks.calibration.run",
    ("sm_90", "sm_90a"),
)


def constants_for(target: str) -> Constants:
    """The constants of a target.

    Raises:
        UsageError: they have not been measured.
    """
    if target in H200.targets:
        return H200
    raise UsageError(f"{target} is not calibrated: there is no prediction for it")
