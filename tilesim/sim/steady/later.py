"""Values of repetitions to come that do not differ by a shift, but can be computed.

What a kernel works on next is often `tile % width`: no shift, yet a function of registers that have
one. Such a value may decide nothing but where global memory is accessed: that is looked at for all
the repetitions which are to be skipped, and for all clusters that take the same steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tilesim.sim.expression import Evaluate, Fit, plain
from tilesim.sim.grid.values import differs
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.unknown import Unknown
from tilesim.sim.steady.bounds import NoShift
from tilesim.sim.steady.shifts import Lost, Shift

#: the numbers of repetitions; the one that is watched is 0
Repetitions = NDArray[np.int64]


class Later(Lost, ABC):
    """A value in the repetitions to come: (repetitions * clusters, 1 or 32) as `at` gives it."""

    @abstractmethod
    def at(self, many: Repetitions) -> NDArray[Any]:
        """The values in these repetitions, in all clusters.

        Raises:
            NoShift: they cannot be computed.
        """


class Shifted(Later):
    """A value that does have a shift, in so many clusters."""

    def __init__(self, value: Any, shift: Shift, clusters: int, why: NoShift) -> None:
        super().__init__(why)
        array = np.asarray(value)
        if array.dtype.kind not in "iu" and np.any(shift):
            raise why
        array = array if array.ndim == 2 else array.reshape(1, -1)
        self._value = np.broadcast_to(array, (clusters, array.shape[1]))
        self._shift = shift

    def at(self, many: Repetitions) -> NDArray[Any]:
        value = np.tile(self._value, (len(many), 1))
        if not np.any(self._shift):
            return value
        moved = np.repeat(many, len(self._value))[:, None] * np.asarray(self._shift)
        return cast("NDArray[Any]", value + moved)


class Carried(Later):
    """What a register holds since the repetition before: ``source`` is what it then ends with."""

    def __init__(self, why: NoShift) -> None:
        super().__init__(why)
        self.source: Later | None = None

    def at(self, many: Repetitions) -> NDArray[Any]:
        if self.source is None or (many < 1).any():
            raise self.why
        return self.source.at(many - 1)


class Computed(Later):
    """The value of an expression of registers that are known in the repetitions to come."""

    def __init__(
        self, evaluate: Evaluate, fit: Fit | None, warp: Any, reads: Iterable[int],
        moving: Mapping[int, Shift], why: NoShift,
    ) -> None:  # fmt: skip
        """``warp``: where it is evaluated; ``reads``: the registers in it, ``moving`` their shifts.

        Raises:
            NoShift: one of them cannot be computed.
        """
        super().__init__(why)
        self._evaluate = evaluate
        self._fit = fit
        self._warp = warp
        self._parts: dict[int, Any] = {}
        for slot in reads:
            value, shift = plain(warp.registers[slot]), moving.get(slot, 0)
            if isinstance(shift, Later):
                self._parts[slot] = shift
            elif type(shift) is Lost or type(value) is Unknown or value is None:
                raise why
            elif type(shift) is int and not shift:
                self._parts[slot] = value.copy() if isinstance(value, np.ndarray) else value
            else:
                self._parts[slot] = Shifted(value, shift, clusters_of(warp), why)
        self._last: tuple[bytes, NDArray[Any]] | None = None

    def at(self, many: Repetitions) -> NDArray[Any]:
        name = many.tobytes()
        if self._last is None or self._last[0] != name:
            self._last = name, self._compute(many)
        return self._last[1]

    def _compute(self, many: Repetitions) -> NDArray[Any]:
        place = _Place(self._warp, len(many))
        registers = {
            slot: part.at(many) if isinstance(part, Later) else _tiled(part, len(many))
            for slot, part in self._parts.items()
        }
        try:
            with np.errstate(divide="raise", over="ignore"):
                value = plain(self._evaluate(cast(Warp, Then(self._warp, place, registers))))
        except ArithmeticError:
            raise self.why from None
        value = value if self._fit is None else plain(self._fit(value))
        if type(value) is Unknown:
            raise self.why
        whole = np.asarray(value)
        rows = len(many) * place.clusters
        return np.broadcast_to(whole, (rows, whole.shape[-1] if whole.ndim else 1))


class _Place:
    """The CTA of a warp in all clusters and repetitions, as expressions see it."""

    def __init__(self, warp: Any, times: int) -> None:
        cta = warp.cta
        self.rank = cta.rank
        self.coords = tuple(_tiled(c, times) for c in cta.coords)
        self.cluster = self
        self.number = _tiled(cta.cluster.number, times)
        self.clusters = clusters_of(warp)


class Then:
    """A warp at another time, as expressions see it."""

    def __init__(self, warp: Any, place: Any, registers: Mapping[int, Any] | Sequence[Any]) -> None:
        """``place``: its CTA."""
        self.machine = warp.machine
        self.number = warp.number
        self.mask = warp.mask
        self.cta = place
        self.registers = registers


def _tiled(value: Any, times: int) -> Any:
    """A value that is the same in all repetitions."""
    return np.tile(value, (times, 1)) if differs(value) else value


def clusters_of(warp: Any) -> int:
    """For how many clusters a warp stands, as expressions see it."""
    number = warp.cta.cluster.number
    return len(number) if differs(number) else 1
