"""Random changes of steps on tensor memory, flags and remote words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from tests.sim import steps as s
from tests.sim.steps import Scope, Small, Space, Step

Choose = Callable[[int], int]
Steps = tuple[Step, ...]

#: steps that are changed here in programs that are not of mbarriers alone
OWN = (
    s.Set, s.Add, s.Spin, s.MemoryFence, s.Red, s.Remote, s.Read, s.Write, s.Mma, s.Cp, s.Ld, s.St,
    s.TensorWait, s.TensorFence, s.TensorCommit,
)  # fmt: skip
_SCOPES: tuple[Scope, ...] = ("cta", "cluster", "gpu", "sys")
#: what a proxy fence may be about
SPACES: tuple[Space | None, ...] = (
    None, "global", "shared::cta", "shared::cluster", "release", "acquire",
)  # fmt: skip


def added(choose: Choose, small: Small) -> Step | None:
    """A step for a program with tensor memory, flags or two CTAs; None for one without."""
    word = choose(small.words)
    if small.slots:
        slot = choose(small.slots)
        options: tuple[Step, ...] = (
            s.TensorFence(bool(choose(2))), s.TensorWait(bool(choose(2))), s.Ld(slot), s.St(slot),
            s.Mma(word, slot), s.Cp(word, slot), s.TensorCommit(choose(len(small.counts))),
            s.Write(word), s.Read(word),
        )  # fmt: skip
        return options[choose(len(options))]
    peer = choose(2) if small.ctas > 1 else None
    scope = _SCOPES[choose(4)]
    if small.flags:
        flag = choose(small.flags)
        options = (
            s.MemoryFence(scope), s.Set(flag, 1 + choose(2), bool(choose(2)), scope, peer),
            s.Add(flag, bool(choose(2)), scope, peer), s.Write(word, cta=peer),
            s.Read(word, cta=peer),
        )  # fmt: skip
        return options[choose(len(options))]
    if small.ctas > 1:
        options = (s.Write(word, cta=peer), s.Read(word, cta=peer), s.Red(word, scope, cta=peer))
        return options[choose(len(options))]
    return None


def altered(choose: Choose, small: Small, step: Step) -> Steps:
    """The step with another operand, or in another form."""
    match step:
        case s.Set() | s.Add() | s.Spin() | s.MemoryFence() | s.Red() | s.Remote():
            return _strong(choose, small, step)
        case s.Read(word=word) | s.Write(word=word):
            options: tuple[Step, ...] = (
                replace(step, scope=_SCOPES[choose(4)]), replace(step, scope=None),
                replace(step, word=choose(max(1, small.words - step.stages + 1))),
                s.Red(word, _SCOPES[choose(4)], cta=step.cta, stages=step.stages),
            )  # fmt: skip
            return (options[choose(len(options))],)
        case _:
            return _tensor(choose, small, step)


def _strong(choose: Choose, small: Small, step: Step) -> Steps:
    scope = _SCOPES[choose(4)]
    match step:
        case s.Set(release=release):
            options: tuple[Step, ...] = (
                replace(step, scope=scope), replace(step, release=not release),
                s.Add(step.flag, release, step.scope, step.cta),
                replace(step, flag=choose(small.flags)), replace(step, value=step.value + 1),
            )  # fmt: skip
        case s.Add(release=release):
            options = (
                replace(step, scope=scope), replace(step, release=not release),
                s.Set(step.flag, 1 + choose(2), release, step.scope, step.cta),
            )  # fmt: skip
        case s.Spin(acquire=acquire, least=least):
            options = (
                replace(step, scope=scope), replace(step, acquire=not acquire),
                replace(step, least=least + 1 - 2 * choose(2)),
                replace(step, flag=choose(small.flags)),
            )  # fmt: skip
        case s.MemoryFence():
            options = (s.MemoryFence(scope),)
        case s.Red(op=op, word=word):
            # max is of integers alone
            other: Literal["add", "max"] = "max" if op == "add" else "add"
            options = (
                replace(step, scope=scope), s.Write(word, cta=step.cta),
                s.Write(word, cta=step.cta, scope=scope),
                step if small.floats or small.operands else replace(step, op=other),
            )  # fmt: skip
        case s.Remote(word=word):
            form = ("st", "red", "copy", "reduce")[choose(4)]
            options = (
                replace(step, form="red") if form == "red" else replace(step, form="reduce"),
                replace(step, form="st") if form == "st" else replace(step, form="copy"),
                replace(step, word=choose(small.words), source=choose(small.words)),
                s.Red(word, scope, cta=step.cta), s.Complete(step.barrier),
            )  # fmt: skip
        case _:
            return ()
    return (options[choose(len(options))],)


def _tensor(choose: Choose, small: Small, step: Step) -> Steps:
    match step:
        case s.Mma(word=word, slot=slot, stages=stages, slots=slots):
            options: tuple[Steps, ...] = (
                (s.Cp(word, slot, stages, slots),), (replace(step, slot=choose(small.slots)),),
                (replace(step, slots=1, slot=0),), (step, step), (s.Cp(word, slot), step),
                (replace(step, word=choose(max(1, small.words - stages + 1))),),
            )  # fmt: skip
        case s.Cp(word=word, slot=slot, stages=stages, slots=slots):
            options = ((s.Mma(word, slot, stages, slots),), (step, step), (s.St(slot, slots),))
        case s.Ld(slot=slot, slots=slots) | s.St(slot=slot, slots=slots):
            other = s.St if isinstance(step, s.Ld) else s.Ld
            options = (
                (other(slot, slots),), (replace(step, slot=choose(small.slots), slots=1),),
                (step, step),
            )  # fmt: skip
        case s.TensorWait(stores=stores):
            options = ((s.TensorWait(not stores),), (s.TensorFence(True),))
        case s.TensorFence(before=before):
            options = ((s.TensorFence(not before),), (s.TensorWait(before),))
        case s.TensorCommit(barrier=barrier, mask=mask, stages=stages):
            masks: tuple[int | None, ...] = (None, 1, 2, 3) if small.ctas > 1 else (None,)
            options = (
                (s.Arrive(barrier, stages=stages),),
                (replace(step, mask=masks[choose(len(masks))]),),
                (replace(step, barrier=choose(len(small.counts) - stages + 1)),),
                (replace(step, mask=mask), step),
            )  # fmt: skip
        case _:
            return ()
    return options[choose(len(options))]


def of_group(choose: Choose, small: Small, step: Step) -> Steps:
    """The step with another operand, or in another form."""
    match step:
        case s.WgMma(acc=acc, word=word):
            options: tuple[Steps, ...] = (
                (replace(step, acc=1 - acc),), (s.WgUse(acc), step), (step, s.WgUse(acc)),
                (replace(step, word=choose(max(1, small.words - step.stages + 1))),),
                (step, replace(step, word=word)),
            )  # fmt: skip
        case s.WgWait(pending=pending):
            options = ((s.WgWait(pending + 1),), (s.WgWait(max(0, pending - 1)),))
        case s.WgFence() | s.WgCommit():
            options = ((), (step, step), (s.WgWait(0), step))
        case s.WgUse(acc=acc):
            options = ((s.WgUse(1 - acc),), (s.WgFence(), step))
        case _:
            options = ((step,),)
    return options[choose(len(options))]
