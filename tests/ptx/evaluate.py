"""`evaluate`: what straight-line PTX leaves in a register, lane by lane.

What an instruction means is a row of a table: PTX, and the numbers that lanes hold in the end. No
finding has to stand for a number.
"""

from __future__ import annotations

import numpy as np

from tests.ptx.test_check import HEAD
from tilesim.ptx.launch import Contents, Launch, Parameter, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.plain import plain
from tilesim.ptx.program import lower
from tilesim.sim.machine.machine import Machine
from tilesim.sim.machine.simulate import Simulation
from tilesim.sim.machine.unknown import Unknown

#: how a register is stored whole, by what its name begins with
_STORES = {"%rd": "u64", "%r": "u32", "%f": "f32"}


def evaluate(
    body: str, register: str = "%r3", *, head: str = HEAD, warps: int = 1,
    params: tuple[str, ...] = (), values: tuple[Parameter, ...] = (),
    variables: tuple[tuple[str, Contents | None], ...] = (),
) -> list[int | None]:  # fmt: skip
    """The bits that a register holds behind ``body``, by thread of the first CTA.

    None: nobody knows. Of a thread that has left before, 0. Both forms of the kernel are run, the
    plain one, which certificates are of, and the small one, which checks run on: they agree, and
    nothing is found.
    """
    kind = next(kind for start, kind in _STORES.items() if register.startswith(start))
    text = (
        f"{head.format(params=', '.join((*params, '.param .u64 out')))}{body}\n"
        "{ .reg .u64 %out, %at; .reg .u32 %own; ld.param.u64 %out, [out]; mov.u32 %own, %tid.x;\n"
        f"mad.wide.u32 %at, %own, 8, %out; st.global.{kind} [%at], {register}; }}\nret;\n}}\n"
    )
    module = read(text, "k.ptx")
    launch = Launch(
        "k", (1, 1, 1), (32 * warps, 1, 1), (1, 1, 1), 4096,
        params=(*values, Pointer("out", 256 * warps)), variables=variables,
    )  # fmt: skip
    machines, stored = list[Machine](), list[list[int]]()
    for form in plain, lower:
        mir = form(module, module.entries[0], launch)
        simulation = Simulation(mir, numbers=True, strict="practice")
        simulation.watches = machines.append
        run = simulation.run({}, lambda cluster: None)
        assert run.findings == ()
        stored.append(run.outputs["out"].view(np.uint64).tolist())
    names = [variable.name for variable in machines[0].program.variables]
    held = [warp.registers[names.index(register[1:])] for warp in machines[0].warps]
    numbers, of_small = stored
    known = [not isinstance(held[thread // 32], Unknown) for thread in range(len(numbers))]
    for number, other, is_known in zip(numbers, of_small, known, strict=True):
        assert number == other or not is_known
    return [number if is_known else None for number, is_known in zip(numbers, known, strict=True)]
