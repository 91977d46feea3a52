"""Random small programs that draw numbers from a counter, and what their exploration says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tilesim import Builder, Program, s32
from tilesim.ir.expr import Expr, Var, all_of
from tilesim.sim.machine.simulate import Simulation
from tilesim.sim.schedulers.exhaustive import explore
from tilesim.sim.schedulers.frontier import Limits

Sem = Literal["relaxed", "acq_rel"]
CELLS = 4


@dataclass(frozen=True)
class Step:
    """One step of all CTAs, or of ``only`` one: an access to a cell, a fence, a draw, a reset, a
    wait until as many numbers are drawn as there are CTAs, times the round of the one drawn last.

    ``cell``: "0", "1" or what chooses it: the CTA ("cta", "next") or the number drawn ("drawn").
    With ``when`` only if the number drawn compares so with ``bound``.
    """

    kind: Literal["write", "read", "fence", "draw", "reset", "add", "wait"]
    cell: str = "0"
    sem: Sem = "acq_rel"
    when: str = ""
    bound: int = 0
    only: int | None = None


@dataclass(frozen=True)
class Drawing:
    """A program: what each CTA does; ``loop``: the steps repeat while the number is below it."""

    ctas: int
    steps: tuple[Step, ...]
    loop: int = 0
    cluster: int = 1


def translate(case: Drawing) -> Program:
    """The program as the simulator takes it: one warp per CTA, one lane that does all."""
    k = Builder("drawing", warps=1)
    waits = any(step.kind == "wait" for step in case.steps)
    k.launch(grid=case.ctas, cluster=case.cluster, cooperative=waits)
    count, data = k.tensor("count", s32, (1,)), k.tensor("data", s32, (CELLS,))
    t, x, seen = k.var("t", 0), k.var("x", 0), k.var("seen", 0)
    cells: dict[str, Expr | int] = {
        "0": 0, "1": 1, "cta": k.cta_x % CELLS, "next": (k.cta_x + 1) % case.ctas,
        "drawn": t % CELLS,
    }  # fmt: skip

    def do(step: Step) -> None:
        cell = data[cells[step.cell]]
        match step.kind:
            case "write":
                k.mem.store(cell, 1)
            case "read":
                k.mem.load(x, cell)
            case "add":
                k.mem.atomic(cell, "add", 1, scope="gpu")
            case "fence":
                k.fence.memory("acq_rel", scope="gpu")
            case "draw":
                k.mem.atomic(count[0], "add", 1, result=t, sem=step.sem, scope="gpu")
            case "wait":
                k.assign(seen, -1)
                with k.while_(seen < (t // case.ctas + 1) * case.ctas):
                    k.mem.load(seen, count[0], sem="acquire", scope="gpu")
            case "reset":
                k.mem.store(count[0], 0)

    def conditional(step: Step) -> None:
        conditions = []
        if step.only is not None:
            conditions.append(k.cta_x.eq(step.only))
        if step.when:
            conditions.append(_compare(step.when, t, step.bound))
        if not conditions:
            do(step)
            return
        with k.if_(all_of(*conditions)):
            do(step)

    with k.elected():
        if case.loop:
            with k.while_(t < case.loop):
                for step in case.steps:
                    conditional(step)
        else:
            for step in case.steps:
                conditional(step)
    return k.finish()


def _compare(when: str, t: Var, bound: int) -> Expr:
    return {"==": t.eq(bound), "<": t < bound, ">=": t >= bound}[when]


def sample(rng: random.Random) -> Drawing:
    """A program: often split-K with something changed, sometimes a tile scheduler, or anything."""
    ctas = rng.choice((2, 2, 3))
    kind = rng.randrange(5)
    if kind == 4:
        return _rounds(rng, ctas)
    cells = ("0", "1", "cta", "cta", "next", "drawn")

    def anything(*, late: bool) -> Step:
        return Step(
            rng.choice(("write", "read", "fence", "add", "write", "read")),
            rng.choice(cells if late else cells[:-1]),
            rng.choice(("relaxed", "acq_rel")),
            rng.choice(("", "==", "<", ">=")) if late else "",
            rng.choice((0, ctas - 1, ctas - 1, ctas - 2, 1)),
            rng.choice((None, None, None, 0, ctas - 1)),
        )

    draw = Step("draw", sem=rng.choice(("relaxed", "acq_rel", "acq_rel")))
    if kind == 3:
        body = [anything(late=True) for _ in range(rng.randrange(1, 3))]
        work = [Step("write", "drawn", when="<", bound=ctas + 1)] if rng.random() < 0.7 else []
        return Drawing(2, (draw, *work, *body[: rng.randrange(2)]), loop=rng.choice((1, 2, 3)))
    before = [Step("write", "cta")] if kind else [anything(late=False)]
    before += [Step("fence")] if rng.random() < 0.4 else []
    last = [Step("fence", when="==", bound=ctas - 1)] if rng.random() < 0.4 else []
    last += [Step("read", str(c), when="==", bound=ctas - 1) for c in range(2)]
    last += [Step("write", "1", when="==", bound=ctas - 1)] if rng.random() < 0.3 else []
    steps = [*before, draw, *last]
    if rng.random() < 0.3:
        steps.append(Step("reset", when="==", bound=rng.choice((ctas - 1, ctas - 1, 0))))
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        place = rng.randrange(len(steps) + 1)
        steps.insert(place, anything(late=place > steps.index(draw)))
    if rng.random() < 0.15:
        steps.append(Step("draw", sem=draw.sem))
    return Drawing(ctas, tuple(steps), cluster=rng.choice((1, 1, 1, ctas)))


def _rounds(rng: random.Random, ctas: int) -> Drawing:
    """Barriers of the grid around accesses, with something changed now and then."""
    steps: list[Step] = []
    for _ in range(rng.choice((1, 2, 2))):
        steps += [Step("write", "cta"), Step("draw"), Step("wait"), Step("read", "next")]
        if rng.random() < 0.5:
            steps += [Step("draw"), Step("wait")]
    for _ in range(rng.choice((0, 0, 1, 2))):
        place = rng.randrange(len(steps))
        match rng.randrange(4):
            case 0:
                del steps[place]
            case 1:
                steps.insert(place, Step(rng.choice(("draw", "wait", "write")), "next"))
            case 2:
                steps[place] = replace(steps[place], only=rng.randrange(ctas))
            case _:
                bound = rng.randrange(2 * ctas)
                steps[place] = replace(steps[place], sem="relaxed", when="<", bound=bound)
    return Drawing(ctas, tuple(steps))


def truth(program: Program, budget: int = 60_000) -> bool | None:
    """Whether some schedule fails; None if there are too many to tell."""
    simulation = Simulation(program, numbers=False, strict="practice")
    clusters: Sequence[int] = range(simulation.groups)
    found = explore(simulation, clusters, {}, Limits(budget))
    if found.failure is not None:
        return True
    return False if found.complete else None
