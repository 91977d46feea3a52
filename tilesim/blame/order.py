"""Which of the two sides of a finding is the one to change, where the rule itself says that."""

from __future__ import annotations

import re

from tilesim.blame.case import Case, Cause, diagnosis
from tilesim.ir import effects as fx
from tilesim.ir.op import Op

#: instructions between two initialisations that belong together, at most
_NEAR = 12


@diagnosis("init-visibility", "peer-exit")
def after_the_init(case: Case) -> Cause | None:
    """The initialisation is not handed on: what is missing stands behind the last one."""
    for side in reversed(case.sides):
        if any(isinstance(e, fx.InitsMbarrier) for e in side.op.effects()):
            last = side.op
            for number, op, effects in case.history.code_of(side.warp):
                near = 0 < number - last.number < _NEAR
                if near and any(
                    isinstance(e, fx.InitsMbarrier) or (isinstance(e, fx.Orders) and e.inits)
                    for e in effects
                ):
                    last = op
            return Cause(
                "nothing hands the initialisation on to those who use the barrier",
                (case.who(side.warp, last, "is the last to initialise"),),
            )
    return None


@diagnosis("register-pool")
def who_takes(case: Case) -> Cause | None:
    """The instruction that wants more registers than there are."""
    for stuck in case.history.stuck:
        op = stuck.blocked.op
        if op is not None and any(isinstance(e, fx.Registers) and e.increase for e in op.effects()):
            return Cause(f"{stuck.warp} wants registers that nobody gives back",
                         (case.who(stuck.warp, op, "waits for registers"),))  # fmt: skip
    return None


@diagnosis("proxy-fence")
def generic_side(case: Case) -> Cause | None:
    """The fence belongs behind the access of the generic proxy."""
    for side in case.sides:
        effects = side.op.effects()
        generic = any(isinstance(e, fx.Reads | fx.Writes) and e.proxy == "generic" for e in effects)
        asynchronous = any(
            isinstance(e, fx.Reads | fx.Writes) and e.proxy == "async" for e in effects
        )
        if generic and not asynchronous:
            return Cause(
                "no fence.proxy.async follows this access of the generic proxy",
                (case.who(side.warp, side.op, "accesses through the generic proxy"),),
            )
    return None


@diagnosis("peer-exit")
def end_of_the_target(case: Case) -> Cause | None:
    """A CTA that can end, or has perhaps not begun, while another one accesses its memory."""
    history = case.history
    ends = re.search(r"CTA (\d+) can exit", case.finding.message)
    if ends is not None:
        cta = int(ends[1])
        last = [history.last_of(w) for w in history.machine.warps if w.cta.number == cta]
        done = max((d for d in last if d is not None), key=lambda d: d.at, default=None)
        if done is not None:
            sides = [case.who(done.warp, done, "is the last thing that it does")]
            ops = [op for _, op, _ in history.code_of(done.warp)]
            if ops[-1] is not done.op:
                sides.append(case.who(done.warp, ops[-1], "is the end of the kernel"))
            return Cause(f"nothing keeps CTA {cta} alive behind its last instruction",
                         tuple(sides))  # fmt: skip
        return None
    for side in case.sides:
        for done in reversed(history.between(side.warp, 0, side.at)):
            if any(
                isinstance(e, fx.JoinsCluster | fx.JoinsBarrier | fx.InitsMbarrier)
                or (isinstance(e, fx.Orders) and e.inits)
                for e in done.op.effects()
            ):
                return Cause(
                    "no cluster barrier follows the initialisation",
                    (case.who(side.warp, done, "comes last before the remote access"),),
                )
    return None


@diagnosis("tmem-lifetime")
def never_freed(case: Case) -> Cause | None:
    """Columns that are allocated and not freed: at the end of the warp that has them."""
    if "nobody freed" not in case.finding.message:
        return None
    for side in case.sides:
        for done in reversed(case.history.between(side.warp, side.at, 1 << 62)):
            if any(isinstance(e, fx.JoinsBarrier | fx.RelinquishesTmem) for e in done.op.effects()):
                return Cause(
                    "nobody frees the columns at the end",
                    (case.who(side.warp, done, "is followed by no tcgen05.dealloc"),),
                    f"let {side.warp} execute tcgen05.dealloc at the end, after everybody's use",
                )
    return None


def _invalidates(op: Op) -> bool:
    return any(isinstance(e, fx.InvalidatesMbarrier) for e in op.effects())


@diagnosis("barrier-lifetime")
def before_the_inval(case: Case) -> Cause | None:
    """A barrier that is invalidated before its last use: the invalidating warp does not wait."""
    for side in case.sides:
        if any(isinstance(e, fx.InvalidatesMbarrier) for e in side.op.effects()):
            if len(case.sides) > 1 and all(_invalidates(s.op) for s in case.sides):
                return Cause(
                    "a barrier is invalidated twice",
                    (case.who(side.warp, side.op, "names a barrier that is invalid already"),),
                )
            for done in reversed(case.history.between(side.warp, 0, side.at)):
                if not any(
                    isinstance(e, fx.InvalidatesMbarrier | fx.Elects) for e in done.op.effects()
                ):
                    return Cause(
                        "nothing makes the warp wait for all users before it invalidates",
                        (case.who(side.warp, done, "is the last thing before mbarrier.inval"),),
                    )
    return None
