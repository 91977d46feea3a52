"""Each instruction by itself: operands, target, alignment of shared addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilesim.errors import Diagnostic
from tilesim.ir.arithmetic import is_float
from tilesim.ir.effects import Arrives, Completes, Effect, Expects, InitsMbarrier, Waits
from tilesim.ir.expr import Expr, constant, divisor
from tilesim.ir.memory import SharedTensor, View
from tilesim.ir.op import Op
from tilesim.ir.ops.bulk import BulkLoad, BulkLoadIgnoring, BulkReduce, BulkStore
from tilesim.ir.ops.tma import TmaLoad, TmaReduce, TmaStore
from tilesim.ir.program import Program, instructions
from tilesim.ir.target import TARGETS

_RULE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")


def check_operands(program: Program) -> Iterator[Diagnostic]:
    """What `Op.verify` says of each instruction; a leading ``rule: `` names the rule."""
    for op in instructions(program):
        for text in op.verify():
            head, colon, rest = text.partition(": ")
            if colon and _RULE.match(head):
                yield Diagnostic(head, rest, op.loc)
            else:
                yield Diagnostic("operand", f"{op.mnemonic}: {text}", op.loc)


def check_counts(program: Program) -> Iterator[Diagnostic]:
    """What counts or names a phase of an mbarrier is an integer; Python's ``/`` makes a float."""
    for op in instructions(program):
        for effect in op.effects():
            for what, expr in _counting(effect):
                if expr is not None and is_float(expr):
                    said = f"{op.mnemonic}: {what} {expr} is a floating-point number, no integer"
                    yield Diagnostic("operand", said, op.loc, "divide integers with //")


def _counting(effect: Effect) -> Iterator[tuple[str, Expr | None]]:
    match effect:
        case InitsMbarrier(count=count):
            yield "count", count
        case Arrives(count=count, bytes=size):
            yield from (("count", count), ("bytes", size))
        case Expects(bytes=size) | Completes(bytes=size):
            yield "bytes", size
        case Waits(phase=phase):
            yield "phase", phase
        case _:
            pass


def check_target(program: Program) -> Iterator[Diagnostic]:
    """The target has every instruction; each lacking feature is named once, where it starts."""
    target = program.target
    missing: dict[str, Op] = {}
    for op in instructions(program):
        for feature in sorted(op.needs - target.features):
            missing.setdefault(feature, op)
    for feature, op in missing.items():
        having = [t.name for t in TARGETS.values() if feature in t.features]
        yield Diagnostic(
            "target", f"{target} has no {op.mnemonic} ({feature})", op.loc,
            f"targets that have it: {', '.join(having)}" if having else "no target has it",
        )  # fmt: skip


def check_alignment(program: Program) -> Iterator[Diagnostic]:
    """Shared addresses of bulk copies: 128 bytes for tensor maps of any rank, 16 otherwise.

    An H200 faults on a 1-D map at 16 bytes, too (B6, U10).
    """
    for op in instructions(program):
        match op:
            case TmaLoad(dst=view) | TmaStore(src=view) | TmaReduce(src=view):
                need = 128
            case (
                BulkLoad(dst=view) | BulkLoadIgnoring(dst=view)
                | BulkStore(src=view) | BulkReduce(src=view)
            ):  # fmt: skip
                need = 16
            case _:
                continue
        if not isinstance(view.tensor, SharedTensor):
            continue
        address = _known_address(program, view)
        if address is not None and address % need:
            yield Diagnostic(
                "out-of-bounds",
                f"{op.mnemonic}: {view} starts at shared address {address}, which is not "
                f"{need}-byte aligned (B6, U10)",
                op.loc,
                f"align {view.tensor.name} and its stages to {need} bytes",
            )


def _known_address(program: Program, view: View) -> int | None:
    """The view's first byte, or some possible one when a stage is only known at run time."""
    address = program.placement.get(view.tensor.name)
    if address is None:
        return None
    for offset, stride in zip(view.offsets, view.tensor.byte_strides, strict=True):
        known = constant(offset)
        if known is not None:
            address += known * stride
        elif (step := divisor(offset) * stride) % 128:
            address += step
    return address
