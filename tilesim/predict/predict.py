"""How long a kernel takes on a GPU that has been measured: a prediction, with its range.

It is an estimate for people who compare variants. No verdict depends on it.
"""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.declarations import GlobalTensor
from tilesim.ir.program import Program
from tilesim.limits import patient
from tilesim.predict.constants import Constants, constants_for
from tilesim.predict.replay import Replay, Share
from tilesim.predict.work import Cluster, work_of
from tilesim.records import dataclass

#: registers of a thread besides those of fragments, if it is not known how many the compiler takes
_OTHER_REGISTERS = 32
#: shared memory of an SM, and what the system takes of it per CTA
_SHARED, _SYSTEM = 228 * 1024, 1024
_WARPS, _CTAS = 64, 32
#: CTAs that are run in each place of an SM, at most
_ITERATIONS = 4
#: how often the work is run: the latency of copies depends on how much is copied in what time
_PASSES = 2


@dataclass(frozen=True)
class Prediction:
    """``cycles`` of the kernel at work; ``duty``: the part of them in which tensor cores multiply;
    ``rate``: bytes per cycle that copies bring to an SM; ``active``: the part of the SMs that have
    work; ``resident``: CTAs on an SM."""

    cycles: float
    duty: float
    rate: float
    active: float
    resident: int
    constants: Constants

    @property
    def megahertz(self) -> float:
        """The clock at which launches that follow each other run."""
        c = self.constants
        work = self.cycles / (self.cycles + c.launch_ns * c.clock_most / 1e3)
        part = self.active * work
        return c.megahertz(self.duty * part, self.rate * part)

    @property
    def microseconds(self) -> float:
        """How long a launch takes, where launches follow each other."""
        return self.cycles / self.megahertz + self.constants.launch_ns / 1e3

    @property
    def range(self) -> tuple[float, float]:
        """Nine of ten kernels that were measured lie in it."""
        return self.constants.low * self.microseconds, self.constants.high * self.microseconds

    def __str__(self) -> str:
        low, high = self.range
        return (
            f"{self.microseconds:,.1f} us ({low:,.1f} to {high:,.1f}) on an {self.constants.name}: "
            f"an estimate from measured latencies, no part of any verdict"
        )


def prediction_json(prediction: Prediction) -> dict[str, object]:
    """A prediction as JSON: times in microseconds."""
    low, high = prediction.range
    return {
        "microseconds": prediction.microseconds, "low": low, "high": high,
        "cycles": prediction.cycles, "megahertz": prediction.megahertz, "duty": prediction.duty,
        "active": prediction.active, "bytes_per_cycle": prediction.rate,
        "resident_ctas": prediction.resident, "gpu": prediction.constants.name,
        "source": prediction.constants.source,
    }  # fmt: skip


@patient()
def predict(program: Program, *, registers: int | None = None) -> Prediction:
    """Predicts a launch; ``registers`` of a thread as the compiler reports them.

    Raises:
        UsageError: the target is not calibrated, or what is executed depends on the schedule.
        InvalidProgram: the program is rejected.
    """
    constants = constants_for(program.target.name)
    size = program.cluster_size
    count = program.ctas // size
    samples = sorted({0, count // 2})
    found = work_of(program, samples)
    resident = occupancy(program, registers)
    places = constants.multiprocessors // size
    slots = min(resident, -(-count // places))
    active = min(count, places * slots) * size
    best = (0.0, 0.0, 0.0)
    for cluster in found if count <= places else found[:1]:
        traffic = _traffic(program, cluster, constants, active)
        iterations = -(-count // places)
        rate = 0.0
        for _ in range(_PASSES):
            end, duty, rate = _run(constants, traffic.share(rate), slots, cluster, iterations)
        best = max(best, (end, duty, rate))
    part = min(1.0, active / constants.multiprocessors)
    return Prediction(*best, part, resident, constants)


def _run(
    constants: Constants, share: Share, slots: int, cluster: Cluster, iterations: int
) -> tuple[float, float, float]:
    """Cycles of so many clusters, one after the other on ``slots``; the part of them in which the
    tensor cores multiply, and bytes per cycle. Many are not run: each more takes as long."""
    few = min(iterations, _ITERATIONS * slots)
    end, sms = Replay(constants, share, slots).run([cluster] * few)
    if iterations > few:
        less, _ = Replay(constants, share, slots).run([cluster] * (few - slots))
        end += (end - less) / slots * (iterations - few)
    scale = iterations / few / len(sms) / end
    return end, scale * sum(sm.multiplied for sm in sms), scale * sum(sm.loaded for sm in sms)


def occupancy(program: Program, registers: int | None = None) -> int:
    """CTAs that fit on an SM at the same time."""
    threads = program.warps * 32
    each = registers or program.registers or _registers(program)
    each = -(-each // 8) * 8
    fits = [
        _SHARED // (program.smem_requested + _SYSTEM), 65536 // (each * threads),
        _WARPS // program.warps, _CTAS,
    ]  # fmt: skip
    return max(1, min(fits))


def _registers(program: Program) -> int:
    """An estimate: what the fragments need, and some more."""
    words = 0
    for fragment in program.fragments:
        rows, columns = fragment.shape
        words += max(1, rows * columns * fragment.dtype.bytes // 4 // fragment.threads)
    return min(255, words + _OTHER_REGISTERS, 65536 // (program.warps * 32))


@dataclass(frozen=True)
class _Traffic:
    """What all SMs copy; ``new`` is the part that comes from memory, not from the L2 cache."""

    constants: Constants
    sms: int
    new: float

    def share(self, rate: float) -> Share:
        """What an SM gets where each copies ``rate`` bytes per cycle: the more, the later."""
        c = self.constants
        per_byte = self.sms * (self.new / c.memory_rate + (1 - self.new) / c.l2_rate)
        busy = min(1.0, rate * self.sms / c.crowd_rate)
        latency = c.load_latency + c.crowd_latency * busy + self.new * c.miss_latency
        return Share(per_byte, latency, max(1 / c.ld_rate, self.sms / c.st_rate))


def _traffic(program: Program, cluster: Cluster, constants: Constants, ctas: int) -> _Traffic:
    """The copies of a launch: what is copied for the first time comes from memory."""
    copied = 0.0
    tensors: dict[str, GlobalTensor] = {}
    for steps in cluster.warps.values():
        for step in steps:
            if step.op.engine == "TMA" and step.issues:
                copied += float(getattr(step.op, "nbytes", 0))
                for effect in step.op.effects():
                    if isinstance(effect, fx.ReadsMap):
                        tensors[effect.map.tensor.name] = effect.map.tensor
    total = copied * program.ctas / program.cluster_size
    unique = min(total, float(sum(t.nbytes for t in tensors.values())))
    new = unique / total if total else 1.0
    return _Traffic(constants, min(ctas, constants.multiprocessors), new)
