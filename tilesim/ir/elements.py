"""Strong vector accesses: as many strong accesses of one element, in an order that PTX leaves open
(SEMANTICS H15)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.declarations import View
from tilesim.ir.expr import Base, Expr, Var, as_expr, walk
from tilesim.ir.mir import Trap
from tilesim.ir.op import Op
from tilesim.ir.ops.scalar import Load, Store
from tilesim.ir.ops.vector import LoadVector, StoreVector
from tilesim.records import replace


def apart(op: Op) -> tuple[Op | Trap, ...]:
    """The instructions that a vector access is executed as, if it is strong; else it alone.

    Its address is looked at first, as that of an element need not be a multiple of so much. A
    register that says the address is loaded last. Of a vector that acquires or releases they say
    which element they are.
    """
    if not isinstance(op, LoadVector | StoreVector) or op.sem == "weak":
        return (op,)
    view = op.src if isinstance(op, LoadVector) else op.dst
    wrong = Trap(
        cond=(_address(view) % view.nbytes).ne(0),
        what=f"{op.mnemonic} of {view.nbytes} bytes at an address of other alignment (H15)",
        misplaced=True,
        loc=op.loc,
    )
    match op:
        case LoadVector():
            says = {v.name for e in view.operands for v in walk(e) if isinstance(v, Var)}
            loaded = sorted(
                zip(op.results, _elements(view), strict=False), key=lambda one: one[0].name in says
            )
            loads = [
                Load(var=var, src=src, sem=op.sem, scope=op.scope, loc=op.loc)
                for var, src in loaded
            ]
            return wrong, *unordered(loads)
        case StoreVector():
            stores = [
                Store(dst=dst, value=value, sem=op.sem, scope=op.scope, loc=op.loc)
                for value, dst in zip(op.values, _elements(view), strict=False)
            ]
            return wrong, *unordered(stores)


def unordered(elements: Sequence[Op]) -> Iterator[Op]:
    """The accesses of a vector, in the order in which they are executed, none of which orders
    another by what it acquires or releases."""
    for number, op in enumerate(elements):
        match op:
            case Load(sem="acquire") | Store(sem="release") if len(elements) > 1:
                yield replace(op, element=(number, len(elements)))
            case _:
                yield op


def goes_on(op: Op) -> bool:
    """Whether an access is a further piece of one that others see as a whole: nothing comes between
    (``ld.b128``)."""
    view = op.src if isinstance(op, Load) else op.dst if isinstance(op, Store) else None
    tensor = None if view is None else view.tensor
    return isinstance(tensor, AddressedTensor) and tensor.undivided and tensor.beyond > 0


def _elements(view: View) -> Iterator[View]:
    ones = (1,) * len(view.extents)
    for index in product(*map(range, view.extents)):
        offsets = tuple(o + i for o, i in zip(view.offsets, index, strict=True))
        yield View(view.tensor, offsets, ones, (), view.cta)


def _address(view: View) -> Expr:
    """Of the first byte; of shared memory in the CTA that executes."""
    tensor = view.tensor
    if isinstance(tensor, AddressedTensor):
        address = tensor.address
    else:
        address = Base(tensor.name, "global" if view.space == "global" else "shared")
    for offset, stride in zip(view.offsets, tensor.byte_strides, strict=True):
        address = address + offset * as_expr(stride)
    return address
