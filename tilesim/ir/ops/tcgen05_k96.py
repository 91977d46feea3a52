"""tcgen05.mma of 4-bit elements with K = 96, of sm_103a."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesim.ir.declarations import View
from tilesim.ir.effects import Effect, Reads, UsesTmem
from tilesim.ir.op import Inputs
from tilesim.ir.ops.tcgen05_mma import Tcgen05Mma
from tilesim.records import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilesim.ir.op import PerLane

#: bytes of a row that one product takes
LONG_ROW = 48


@dataclass(frozen=True, kw_only=True)
class LongMma(Tcgen05Mma):
    """A product whose rows of A and B end in other views, if they have one; with six scale factors
    for each row: those of 32 rows take two words, the second ones behind the first of all rows.

    Its results are never seen: in PTX, what tcgen05.ld loads is not known.
    """

    mnemonic = "tcgen05.mma.k96"

    a_rest: View | None = None
    b_rest: View | None = None

    def _rests(self) -> tuple[View, ...]:
        return tuple(view for view in (self.a_rest, self.b_rest) if view is not None)

    @property
    def shape(self) -> tuple[int, int, int]:
        m, n, _ = super().shape
        return m, n, 2 * LONG_ROW

    def _depth_problems(self) -> Iterator[str]:
        for name, view, rest in (("A", self.a, self.a_rest), ("B", self.b, self.b_rest)):
            width = view.shape[1] + (0 if rest is None else rest.shape[1])
            if width != LONG_ROW:
                yield f"rows of {name} have {width} bytes, K = 96 needs {LONG_ROW} (G15)"

    def _inputs(self) -> Iterator[UsesTmem]:
        for use in super()._inputs():
            parts = tuple(replace(part, columns=2 * part.columns) for part in use.cells.parts)
            yield replace(use, layout=replace(use.cells, parts=parts))

    def effects(self) -> tuple[Effect, ...]:
        *before, result = super().effects()
        return (*before, *(Reads(v, "async", asynchronous=True) for v in self._rests()), result)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        return tuple(inputs.part(self.d, cta) for cta in range(self.cta_group))
