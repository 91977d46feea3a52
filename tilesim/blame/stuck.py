"""Why nobody releases those who wait: nobody arrives, they wait for another phase, loops differ."""

from __future__ import annotations

from tilesim.blame.barriers import about, elsewhere, inits, label_of, one_each
from tilesim.blame.case import Case, Cause, diagnosis
from tilesim.blame.history import Stuck
from tilesim.blame.places import loop_of
from tilesim.ir import effects as fx
from tilesim.sim.findings import Participant
from tilesim.sim.machine.mbarrier import Mbarrier


@diagnosis("deadlock")
def nobody_arrives(case: Case) -> Cause | None:
    """A barrier on which no arrival has ever been made: it is expected of somebody, and where."""
    history = case.history
    for on in about(case):
        credits = history.credits(on)
        if not on.live or any(c.arrivals > 0 for c in credits) or not on.pending:
            continue
        others = elsewhere(case, on)
        if others:
            return Cause(
                f"nobody arrives on {on.label}: who would names another barrier",
                (*(case.of(c, f"arrives on {label_of(c)}") for c in others), *inits(case, on)),
            )
        waiters = [stuck.warp for stuck in history.stuck if stuck.on is on]
        if history.waits_for is None or any(map(history.waits_for.suppliers, waiters)):
            continue
        bare = one_each(c for c in credits if c.tx > 0)
        if bare:
            return Cause(
                f"nobody arrives on {on.label}: its bytes are expected without an arrival",
                (*(case.of(c, f"expects {c.tx} bytes and does not arrive") for c in bare),
                 *inits(case, on)),
            )  # fmt: skip
        where = _last_use(case, on)
        if where is not None:
            return Cause(
                f"nobody arrives on {on.label}, for which {on.expected} arrivals are expected",
                (where, *inits(case, on)),
            )
    return None


def _last_use(case: Case, on: Mbarrier) -> Participant | None:
    """The last thing that a warp does which those who wait for ``on`` have let go on: it should
    arrive."""
    history = case.history
    waiters = {s.warp for s in history.stuck if s.on is on}
    for stuck in history.stuck:
        if stuck.warp in waiters:
            continue
        passes = [
            p for p in history.passes(stuck.warp)
            if isinstance(p.on, Mbarrier) and any(history.supplies(w, p.on) for w in waiters)
        ]  # fmt: skip
        done = history.between(stuck.warp, passes[-1].at, 1 << 62) if passes else []
        if done:
            return case.who(stuck.warp, done[-1].op, f"does not arrive on {on.label} afterwards")
    return None


@diagnosis("deadlock")
def parity_of_a_wait(case: Case) -> Cause | None:
    """A wait for a phase after the next one of its warp, or one that nobody can start with."""
    history = case.history
    for stuck in history.stuck:
        on, op = stuck.on, stuck.blocked.op
        if not isinstance(on, Mbarrier) or op is None:
            continue
        seen = [t.phase for t in history.passes(stuck.warp, on)]
        want = (seen[-1] + 1) if seen else 0
        if stuck.phase > want and on.expected and history.credits(on):
            return Cause(
                f"{stuck.warp} waits for phase {stuck.phase} of {on.label} and has not waited for "
                f"phase {want}",
                (case.who(stuck.warp, op, f"waits for phase {stuck.phase} of {on.label}"),),
            )
    fresh = [
        s for s in history.stuck
        if isinstance(s.on, Mbarrier) and s.phase == 0 and not history.credits(s.on)
        and s.blocked.op is not None
    ]  # fmt: skip
    for stuck in fresh:
        graph = history.waits_for
        if graph is not None and _fills(case, stuck) and graph.suppliers(stuck.warp):
            assert stuck.blocked.op is not None
            release = graph.suppliers(stuck.warp)[0]
            return Cause(
                f"{stuck.warp} waits for the first arrival on {_name(stuck.on)} before it has "
                "filled anything: who fills starts with parity 1",
                (case.who(stuck.warp, stuck.blocked.op, "waits before anything is filled"),
                 case.who(release[0], release[1], "would arrive only afterwards")),
            )  # fmt: skip
    return None


def _name(on: object) -> str:
    return getattr(on, "label", str(on))


def _fills(case: Case, stuck: Stuck) -> bool:
    """Whether a warp has the copies or writes that others wait for."""
    return any(
        isinstance(e, fx.Completes) for _, _, effects in case.history.code_of(stuck.warp)
        for e in effects
    )  # fmt: skip


@diagnosis("deadlock")
def trips(case: Case) -> Cause | None:
    """Who should arrive has left its loop: the loops of two roles make different numbers of
    trips."""
    history, graph = case.history, case.history.waits_for
    if graph is None:
        return None
    mir = history.machine.loaded.mir
    for stuck in history.stuck:
        on = stuck.on
        if not isinstance(on, Mbarrier) or graph.suppliers(stuck.warp):
            continue
        for warp in history.machine.warps:
            ops = {op.number: op for op in history.supplies(warp, on)}
            made = [c for c in history.credits(on, warp) if c.op.number in ops]
            if not made or made[-1].phase >= on.phase:
                continue
            theirs, ours = loop_of(mir, made[-1].op), loop_of(mir, stuck.blocked.op)
            if theirs is None and ours is None:
                continue
            times = len(history.executions(warp, made[-1].op.number))
            sides = []
            if theirs is not None:
                sides.append(case.who(warp, theirs, f"ends after {times} trip(s)"))
            if ours is not None and ours != theirs:
                sides.append(case.who(stuck.warp, ours, "goes on"))
            return Cause(
                f"{warp} has made all its {times} arrival(s) and {stuck.warp} waits for another "
                f"phase of {on.label}",
                tuple(sides),
            )
    return None
