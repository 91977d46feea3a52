"""Mutants by name: the mistakes that other tools were measured with, in kernels of the gallery.

JAX's Mosaic GPU interpret mode was measured on 11 mutants of a Hopper pipeline and 12 of a
Blackwell pipeline. Those programs are not in this repository; these are the same mistakes in the
closest kernels of the gallery, a persistent warp-specialised matmul of each generation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.mutation_score.gallery import LONG
from benchmarks.mutation_score.tables import Rows
from tilesim.errors import UsageError
from tilesim.fuzz.cases import Case, Params, Settings
from tilesim.fuzz.judge import base_of, judge
from tilesim.layout import line_of

_PACKAGE = "tilesim.kernels."
_HOPPER = "hopper.matmul_v6::matmul"
_BLACKWELL = "blackwell.matmul_v4::matmul"
#: full barriers that take two arrivals; one too few of one is none, which is refused
_TWO = "bugs.shared_barriers::two_producers"


@dataclass(frozen=True)
class Named:
    """A mistake: the fault of the catalogue and the place of the kernel that stand for it.

    ``line`` is part of the source line, ``what`` part of the description; the first match counts.
    """

    generation: str
    name: str
    fault: str
    line: str
    what: str = ""
    kernel: str = ""

    @property
    def target(self) -> str:
        """The kernel."""
        default = _HOPPER if self.generation == "Hopper" else _BLACKWELL
        return f"{_PACKAGE}{self.kernel or default}"

    @property
    def params(self) -> Params:
        """Its parameters."""
        if self.kernel == _TWO:
            return (("barriers", "shared, count 2"),)
        return tuple(LONG[self.target.removeprefix(_PACKAGE)][0].items())

    def case(self) -> Case:
        """The mutant.

        Raises:
            UsageError: the kernel has no such place.
        """
        for index, mutant in enumerate(base_of(self.target, self.params).mutants):
            there = self.line in line_of(mutant.loc)
            if mutant.fault == self.fault and there and self.what in mutant.what:
                return Case(0, self.target, self.params, Settings(), 0, index)
        raise UsageError(f"{self.target} has no place for {self.fault!r} at {self.line!r}")


def _hopper() -> Iterator[Named]:
    for name, fault, line, what in (
        ("producer skips the empty wait", "wait dropped", "slot.acquire()", ""),
        ("consumer skips the full wait", "wait dropped", "slot.wait(", ""),
        ("wrong slot", "data of another slot", "multiply_tile(", "sB"),
        ("released before the wgmma finished", "arrive before the group wait", "kt - 1", ""),
        ("wgmma wait dropped", "wgmma wait dropped", "wait_group(1)", ""),
        ("empty never released", "arrive dropped", "kt - 1", ""),
        ("full count one too large", "wrong arrival count", "open_cta(", "2 instead of 1"),
        ("phase starts again with every tile", "phase not carried", "slot.wait(", "every tile"),
        ("epilogue without proxy fence", "proxy fence dropped", "fence.proxy_async", ""),
        ("store not awaited", "store not awaited", "wait_group(0, read=True)", ""),
    ):
        yield Named("Hopper", name, fault, line, what)
    yield Named(
        "Hopper", "full count one too small", "wrong arrival count", "init(", "1 instead of 2", _TWO
    )  # fmt: skip


def _blackwell() -> Iterator[Named]:
    for name, fault, line, what in (
        ("producer skips the empty wait", "wait dropped", "slot.acquire()", ""),
        ("consumer skips the full wait", "wait dropped", "slot.wait()", ""),
        ("accumulator overwritten: its empty wait skipped", "wait dropped", "result.acquire()", ""),
        ("epilogue skips the wait for the accumulator", "wait dropped", "result.wait()", ""),
        ("wrong slot", "data of another slot", "multiply_tile(", "sB"),
        ("released before the MMA finished", "commit without the operations",
         "commit(slot.empty)", ""),
        ("empty never released", "arrive dropped", "commit(slot.empty)", ""),
        ("accumulator released before it is read", "tcgen05 wait dropped", "wait_ld()", ""),
        ("full count one too large", "wrong arrival count", "memory.allocated(", "2 instead of 1"),
        ("accumulator's empty count one too small", "wrong arrival count", "memory.allocated(",
         "127 instead of 128"),
        ("epilogue without proxy fence", "proxy fence dropped", "fence.proxy_async", ""),
        ("store not awaited", "store not awaited", "wait_group(0, read=True)", ""),
    ):  # fmt: skip
        yield Named("Blackwell", name, fault, line, what)


NAMED: tuple[Named, ...] = (*_hopper(), *_blackwell())


def table() -> Rows:
    """What becomes of each of them."""
    rows: Rows = [("target", "mistake", "fault", "kernel", "verdict", "finding", "schedules")]
    for named in NAMED:
        outcome = judge(named.case())
        kernel = named.target.removeprefix(_PACKAGE)
        finding = outcome.rules[0] if outcome.rules else ""
        rows.append(
            (
                named.generation, named.name, named.fault, kernel, outcome.verdict, finding,
                str(outcome.schedules),
            )
        )  # fmt: skip
    return rows
