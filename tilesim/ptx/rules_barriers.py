"""Rules for mbarriers, barriers of a CTA and a cluster, fences, and what steers a launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tilesim.ir.expr import Const, Expr
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import BarArrive, BarRed, BarSync, Exit, Setmaxnreg
from tilesim.ir.ops.cluster import (
    ClusterArrive,
    ClusterWait,
    GriddepLaunchDependents,
    GriddepWait,
)
from tilesim.ir.ops.fence import Fence, FenceProxyAsync
from tilesim.ir.ops.hints import Nanosleep
from tilesim.ir.ops.mbarrier import (
    ONE,
    FenceMbarrierInit,
    MbarrierArrive,
    MbarrierArriveDrop,
    MbarrierArriveExpectTx,
    MbarrierCompleteTx,
    MbarrierExpectTx,
    MbarrierInit,
    MbarrierInval,
    MbarrierPendingCount,
    MbarrierTestWait,
    MbarrierTryWait,
    MbarrierWait,
)
from tilesim.ir.ops.scalar import Assign
from tilesim.ptx.flat import At, Flat, Nothing, Step
from tilesim.ptx.lowering import Lowering, rule

_SPACES = frozenset({"shared", "shared::cta", "shared::cluster"})


class _Form:
    """The qualifiers of an mbarrier instruction."""

    def __init__(self, low: Lowering, step: Step, *allowed: str) -> None:
        left = set(step.qualifiers[1:]) - _SPACES - {"b64", *allowed}
        self.scope: Literal["cta", "cluster"] = "cluster" if "cluster" in left else "cta"
        self.relaxed = "relaxed" in left
        unknown = left - {"cta", "cluster", "relaxed", "release", "acquire"}
        if unknown:
            raise low.unsupported(f".{min(unknown)} is not modelled")
        self.space = low.space(step.qualifiers)
        if self.space == "generic":
            raise low.unsupported("mbarriers at generic addresses are not modelled")


@rule("mbarrier.init")
def _init(low: Lowering, step: Step) -> Iterator[Op]:
    form = _Form(low, step)
    mbar, count = low.mbar(step.operands[0], form.space), low.value(step.operands[1], 32)
    yield MbarrierInit(mbar=mbar, count=count, loc=low.loc)


@rule("mbarrier.inval")
def _inval(low: Lowering, step: Step) -> Iterator[Op]:
    form = _Form(low, step)
    yield MbarrierInval(mbar=low.mbar(step.operands[0], form.space), loc=low.loc)


@rule("mbarrier.arrive", "mbarrier.arrive_drop")
def _arrive(low: Lowering, step: Step) -> Iterator[Op]:
    form = _Form(low, step, "expect_tx", "noComplete")
    operands = list(step.operands)
    token = None
    if not isinstance(operands[0], At):
        first = operands.pop(0)
        token = None if first == Nothing() else low.register(first)
    mbar = low.mbar(operands[0], form.space)
    more = low.value(operands[1], 32) if len(operands) > 1 else None
    sem: Literal["relaxed", "release"] = "relaxed" if form.relaxed else "release"
    expects = "expect_tx" in step.qualifiers
    if expects and more is None:
        raise low.unsupported("the number of bytes is missing")
    drop = step.qualifiers[0] == "arrive_drop"
    if drop:
        yield MbarrierArriveDrop(
            mbar=mbar, count=ONE if expects or more is None else more,
            bytes=more if expects else None, sem=sem, scope=form.scope, token=token, loc=low.loc,
        )  # fmt: skip
    elif expects and more is not None:
        yield MbarrierArriveExpectTx(
            mbar=mbar, bytes=more, sem=sem, scope=form.scope, token=token, loc=low.loc
        )
    else:
        yield MbarrierArrive(
            mbar=mbar, count=ONE if more is None else more, sem=sem, scope=form.scope, token=token,
            no_complete="noComplete" in step.qualifiers, loc=low.loc,
        )  # fmt: skip


@rule("mbarrier.expect_tx", "mbarrier.complete_tx")
def _transactions(low: Lowering, step: Step) -> Iterator[Op]:
    form = _Form(low, step)
    mbar, nbytes = low.mbar(step.operands[0], form.space), low.value(step.operands[1], 32)
    kind = MbarrierExpectTx if step.qualifiers[0] == "expect_tx" else MbarrierCompleteTx
    yield kind(mbar=mbar, bytes=nbytes, scope=form.scope, loc=low.loc)


@rule("mbarrier.try_wait", "mbarrier.test_wait")
def _wait(low: Lowering, step: Step) -> Iterator[Op]:
    form = _Form(low, step, "parity")
    result, mbar = low.register(step.operands[0]), low.mbar(step.operands[1], form.space)
    parity = "parity" in step.qualifiers
    phase: Expr = low.value(step.operands[2], 32 if parity else 64)
    sem: Literal["relaxed", "acquire"] = "relaxed" if form.relaxed else "acquire"
    if step.qualifiers[0] == "test_wait":
        yield MbarrierTestWait(
            result=result, mbar=mbar, phase=phase, parity=parity, sem=sem, scope=form.scope,
            loc=low.loc,
        )  # fmt: skip
        return
    hint = low.constants.number(step.operands[3]) if len(step.operands) > 3 else None
    yield MbarrierTryWait(
        result=result, mbar=mbar, phase=phase, parity=parity, sem=sem, scope=form.scope,
        time_hint=hint, loc=low.loc,
    )  # fmt: skip


def wait(low: Lowering, step: Step) -> Iterator[Op]:
    """A try_wait that is repeated until it succeeds."""
    form = _Form(low, step, "parity")
    parity = "parity" in step.qualifiers
    sem: Literal["relaxed", "acquire"] = "relaxed" if form.relaxed else "acquire"
    yield MbarrierWait(
        mbar=low.mbar(step.operands[1], form.space), parity=parity, sem=sem, scope=form.scope,
        phase=low.value(step.operands[2], 32 if parity else 64), loc=low.loc,
    )  # fmt: skip
    yield Assign(var=low.register(step.operands[0]), value=Const(1), loc=low.loc)


@rule("mbarrier.pending_count")
def _pending(low: Lowering, step: Step) -> Iterator[Op]:
    result, token = low.register(step.operands[0]), low.value(step.operands[1])
    yield MbarrierPendingCount(result=result, token=token, loc=low.loc)


# ---------------------------------------------------------------------- barriers of a CTA


@rule("bar", "barrier")
def _barrier(low: Lowering, step: Step) -> Iterator[Op]:
    names = [q for q in step.qualifiers if q != "cta"]
    aligned = step.base == "bar" or "aligned" in names
    action = names[0] if names else ""
    operands = list(step.operands)
    if action == "red":
        yield from _reduce(low, step, aligned)
        return
    number = low.value(operands[0], 32)
    threads = _threads(low, operands[1:])
    if action == "sync" and set(names) <= {"sync", "aligned"}:
        yield BarSync(id=number, threads=threads, aligned=aligned, loc=low.loc)
    elif action == "arrive" and set(names) <= {"arrive", "aligned"} and threads is not None:
        yield BarArrive(id=number, threads=threads, aligned=aligned, loc=low.loc)
    else:
        raise low.unsupported("this form is not modelled")


def _threads(low: Lowering, operands: list[Flat]) -> int | None:
    return low.constant(operands[0], "the number of threads") if operands else None


def _reduce(low: Lowering, step: Step, aligned: bool) -> Iterator[Op]:
    result, number, *counts, value = step.operands
    op = next((_REDUCTIONS[q] for q in step.qualifiers if q in _REDUCTIONS), None)
    if op is None:
        raise low.unsupported("this reduction is not modelled")
    yield BarRed(
        result=low.register(result), id=low.value(number, 32), value=low.value(value, 1), op=op,
        threads=_threads(low, counts), aligned=aligned, loc=low.loc,
    )  # fmt: skip


_REDUCTIONS: dict[str, Literal["and", "or", "popc"]] = {"and": "and", "or": "or", "popc": "popc"}


@rule("barrier.cluster")
def _cluster(low: Lowering, step: Step) -> Iterator[Op]:
    aligned = "aligned" in step.qualifiers
    if "arrive" in step.qualifiers:
        sem: Literal["release", "relaxed"] = (
            "relaxed" if "relaxed" in step.qualifiers else "release"
        )
        yield ClusterArrive(sem=sem, aligned=aligned, loc=low.loc)
    else:
        yield ClusterWait(aligned=aligned, loc=low.loc)


# ---------------------------------------------------------------------- fences


@rule("fence")
def _fence(low: Lowering, step: Step) -> Iterator[Op]:
    scopes: dict[str, Literal["cta", "cluster", "gpu", "sys"]] = {
        "cta": "cta", "cluster": "cluster", "gpu": "gpu", "sys": "sys",
    }  # fmt: skip
    sems: dict[str, Literal["acq_rel", "sc", "acquire", "release"]] = {
        "acq_rel": "acq_rel", "sc": "sc", "acquire": "acquire", "release": "release",
    }  # fmt: skip
    match step.qualifiers:
        case (scope,) if scope in scopes:
            yield Fence(sem="acq_rel", scope=scopes[scope], loc=low.loc)
        case (sem, scope) if sem in sems and scope in scopes:
            yield Fence(sem=sems[sem], scope=scopes[scope], loc=low.loc)
        case ("mbarrier_init", "release", "cluster"):
            yield FenceMbarrierInit(loc=low.loc)
        case ("proxy", "async"):
            yield FenceProxyAsync(loc=low.loc)
        case ("proxy", "async", "global"):
            yield FenceProxyAsync(space="global", loc=low.loc)
        case ("proxy", "async", "shared::cta"):
            yield FenceProxyAsync(space="shared::cta", loc=low.loc)
        case ("proxy", "async", "shared::cluster"):
            yield FenceProxyAsync(space="shared::cluster", loc=low.loc)
        case _:
            raise low.unsupported("this fence is not modelled")


@rule("membar")
def _membar(low: Lowering, step: Step) -> Iterator[Op]:
    levels: dict[str, Literal["cta", "gpu", "sys"]] = {"cta": "cta", "gl": "gpu", "sys": "sys"}
    scope = levels.get(step.qualifiers[-1])
    if scope is None or len(step.qualifiers) != 1:
        raise low.unsupported("this fence is not modelled")
    yield Fence(sem="sc", scope=scope, loc=low.loc)


# ---------------------------------------------------------------------- the rest


@rule("setmaxnreg")
def _registers(low: Lowering, step: Step) -> Iterator[Op]:
    count = low.constant(step.operands[0], "the number of registers")
    if "inc" in step.qualifiers:
        yield Setmaxnreg(count=count, action="inc", loc=low.loc)
    else:
        yield Setmaxnreg(count=count, action="dec", loc=low.loc)


@rule("griddepcontrol.wait")
def _grid_wait(low: Lowering, step: Step) -> Iterator[Op]:
    yield GriddepWait(loc=low.loc)


@rule("griddepcontrol.launch_dependents")
def _grid_launch(low: Lowering, step: Step) -> Iterator[Op]:
    yield GriddepLaunchDependents(loc=low.loc)


@rule("nanosleep")
def _sleep(low: Lowering, step: Step) -> Iterator[Op]:
    yield Nanosleep(duration=low.value(step.operands[0], 32), loc=low.loc)


@rule("ret", "exit")
def _exit(low: Lowering, step: Step) -> Iterator[Op]:
    yield Exit(loc=low.loc)
