"""Rules for loads of parameters."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.ir.op import Op
from tilesim.ir.ops.scalar import Assign
from tilesim.ptx.flat import At, Flat, Nothing, Step, Symbol
from tilesim.ptx.lowering import Lowering, rule
from tilesim.ptx.spelled import spelled
from tilesim.ptx.syntax import WIDTH


def _parameter(low: Lowering, operand: Flat) -> Symbol | None:
    """The place in the parameters that an address names."""
    if not isinstance(operand, At):
        return None
    if isinstance(operand.base, Symbol):
        return operand.base if operand.base.variable.space == "param" else None
    base = low.constants.parameter(operand.base) if not isinstance(operand.base, int) else None
    return None if base is None else Symbol(base.variable, base.offset + operand.offset)


@rule("ld")
def _load(low: Lowering, step: Step) -> Iterator[Op]:
    parameter = _parameter(low, step.operands[1])
    if parameter is not None:
        targets = low.items(step.operands[0])
        yield from _load_parameter(low, targets, parameter, WIDTH[step.qualifiers[-1]] // 8)
        return
    ops = spelled(low, step)
    if ops is None:
        raise low.unsupported("loads of this kind are not modelled")
    yield from ops


def _load_parameter(
    low: Lowering, targets: tuple[Flat, ...], place: Symbol, nbytes: int
) -> Iterator[Op]:
    for k, target in enumerate(targets):
        if target == Nothing():
            continue
        offset = place.offset + k * nbytes
        value = low.launched.value(place.variable.name, offset, nbytes)
        if value is None:
            raise low.unsupported(
                f"byte {offset} of {place.variable.name} is not in the launch description",
                "give its value",
            )  # fmt: skip
        yield Assign(var=low.register(target), value=value, loc=low.loc)
