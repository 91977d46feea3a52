"""Programs whose branches are drawn blindly: each lane does what it does alone, and all meet."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from tests.sim.test_control_flow import program
from tilesim.ir.mir import Join
from tilesim.sim.machine.simulate import simulate
from tilesim.transforms.rewrite import joined

#: turns that the lanes may make in all
FUEL = 40


@dataclass(frozen=True)
class Drawn:
    """Instructions of one block: what is added, and where lanes go on by ``(x + lane) % n``."""

    add: int
    targets: tuple[int, ...]


def drawn(rng: random.Random) -> list[Drawn]:
    """Blocks 0 to n - 1; n is the end."""
    count = rng.randrange(2, 8)
    return [
        Drawn(
            rng.randrange(1, 9),
            tuple(rng.randrange(count + 1) for _ in range(rng.choice((1, 2, 2, 3)))),
        )
        for _ in range(count)
    ]


def alone(blocks: list[Drawn], lane: int) -> int | None:
    """What x is in the end for a lane; None if it runs out of fuel and ends early."""
    at = x = 0
    for _ in range(FUEL):
        if at == len(blocks):
            return x
        block = blocks[at]
        x += block.add
        at = block.targets[(x + lane) % len(block.targets)]
    return x if at == len(blocks) else None


def written(blocks: list[Drawn]) -> str:
    """The blocks as code, five instructions each."""
    size, start = 5, 2
    place = [start + size * n for n in range(len(blocks) + 1)]
    lines = ["mov x, 0", "mov y, 0"]
    for block in blocks:
        lines += [f"if (y >= {FUEL}) exit", "mov y, y + 1", f"mov x, x + {block.add}"]
        index = f"(x + %lane_id) % {len(block.targets)}"
        goals = [place[t] for t in block.targets]
        match goals:
            case [goal]:
                lines += ["nanosleep 1", f"branch {goal}"]
            case [no, yes]:
                lines += [f"branch {yes}, cond={index}, sense=true", f"branch {no}"]
            case _:
                table = ", ".join(map(str, goals))
                lines += ["nanosleep 1", f"switch {index}, {{{table}}}"]
    return "\n".join(
        [
            *lines,
            "st out[4 * (%lane_id)], x",
            "bar.warp.sync",
            "activemask mask",
            "st met[4 * (%lane_id)], mask",
        ]
    )


@pytest.mark.parametrize("seed", range(60))
def test_lanes_go_their_ways_and_meet_at_the_end(seed: int) -> None:
    blocks = drawn(random.Random(seed))
    mir = joined(program(written(blocks)))
    run = simulate(mir)
    assert not run.findings
    expected = [alone(blocks, lane) for lane in range(32)]
    assert run.outputs["out"].tolist() == [x or 0 for x in expected]
    there = sum(1 << lane for lane, x in enumerate(expected) if x is not None)
    met = [0 if x is None else there for x in expected]
    assert run.outputs["met"].tolist() == met
    assert joined(mir) == mir
    assert there in (0, 0xFFFFFFFF) or any(isinstance(i.what, Join) for i in mir.code)
