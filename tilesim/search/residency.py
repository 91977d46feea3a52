"""Launches that are not cooperative: clusters start in any order, one at a time if need be.

Nothing more is promised than that a cluster that runs goes on (SEMANTICS 0.4a). So a cluster must
be able to end before any other has started. If each can, and one run proves the schedules in which
all are resident, then each wait needs only what its own cluster does, and passes whoever is
resident. Where it is up to the schedule what a cluster waits for, no run with one resident at a
time shows that; see `tilesim.sim.explore`.

All CTAs of a cooperative launch are resident together, so they have to fit on the GPU: the driver
refuses a launch of more. How many fit is known as far as shared memory and threads say it; how many
registers ptxas gives a thread may not be, and how many multiprocessors there are is up to the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from tilesim.ir.mir import Branch
from tilesim.ir.program import Program
from tilesim.leaning import Leaning
from tilesim.search.extent import begin
from tilesim.search.survey import Survey
from tilesim.sim.findings import Finding, Participant
from tilesim.sim.schedule import ResidentEnvironment
from tilesim.sim.simulate import Run, Simulation

#: bytes of shared memory that each CTA takes besides its own, and in what units it is given out
_RESERVED, _UNIT = 1024, 128
#: registers that a thread has at most
_MOST_REGISTERS = 256
#: why exploring the schedules of all clusters together is not enough
ANY_ORDER = (
    "clusters wait for each other; which of them are resident together is up to the hardware, as "
    "the launch is not cooperative (0.4a)"
)


@dataclass(frozen=True)
class Residency:
    """``failing``: the run in which cluster ``first`` is resident first, if one fails; else why
    that is not known of all clusters."""

    runs: int
    failing: Run | None = None
    first: int = 0
    left_open: tuple[str, ...] = ()


def held(program: Program) -> tuple[int, int]:
    """How many CTAs a GPU of the target holds at once: at least, with as many registers as a thread
    may have on the smallest one; and at most."""
    target = program.target
    threads = 32 * program.warps
    used = max(program.smem_used, program.smem_bytes or 0)
    # an SM has 1 KiB more than a CTA may have, and each CTA takes 1 KiB for itself
    shared = (target.smem + _RESERVED) // (-(-used // _UNIT) * _UNIT + _RESERVED)
    most = min(target.ctas, target.threads // threads, shared)
    # ptxas decides what is not declared; a launch description that says none has all of them
    share = min(_MOST_REGISTERS, target.registers // threads // 8 * 8)
    registers = -(-(program.registers or share) // 8) * 8
    least = max(1, min(most, target.registers // (registers * threads)))
    most = least if registers < share else most
    few, many = target.multiprocessors
    return least * few, most * many


def too_many(simulation: Simulation) -> Finding | None:
    """The finding if no GPU of the target holds the CTAs of a cooperative launch, which may wait
    for each other."""
    program, mir = simulation.program, simulation.code.mir
    _, most = held(program)
    if not (program.cooperative and simulation.together) or program.ctas <= most:
        return None
    many = program.target.multiprocessors[1]
    at = next((program.set_at[f] for f in ("grid", "cooperative") if f in program.set_at), None)
    polls = [i for i in mir.code if isinstance(i.what, Branch) and i.what.polls]
    launch = Participant(
        program.name, 0, None, f"launches {program.ctas} CTAs, all to be resident at once",
        at or begin(mir),
    )  # fmt: skip
    waits = [
        Participant(i.role or program.name, 0, None, "may wait for other CTAs", i.loc)
        for i in polls
    ]
    return Finding(
        "deadlock",
        f"a cooperative launch of {program.ctas} CTAs that may wait for each other: no GPU of "
        f"{program.target} holds more than {most} at once, so the driver refuses it, and CTAs that "
        "ran all the same would wait for others that cannot start",
        (launch, *waits[:1]),
        (
            f"{most // many} per multiprocessor, of which there are at most {many}: "
            f"{max(program.smem_used, program.smem_bytes or 0)} bytes of shared memory and "
            f"{32 * program.warps} threads per CTA (0.4a)",
        ),
        fix=f"launch at most {most} CTAs, each of which does more, or use less shared memory",
    )


def device_size(simulation: Simulation) -> Leaning | None:
    """What a proof of a cooperative launch takes for granted of the GPU, if it is anything."""
    program = simulation.program
    least, _ = held(program)
    if not (program.cooperative and simulation.together) or program.ctas <= least:
        return None
    text = f"if the GPU holds all {program.ctas} CTAs of the cooperative launch at once"
    return Leaning("device-size", text, (begin(simulation.code.mir),), "assumption")


def matters(simulation: Simulation) -> bool:
    """Whether clusters may wait for others that have not been started."""
    return simulation.together and not simulation.program.cooperative


def one_at_a_time(simulation: Simulation, inputs: Mapping[str, NDArray[Any]]) -> Residency:
    """Runs each cluster as if the others had not been started, then all one after another."""
    apart = simulation.apart()
    alone = Survey(apart, inputs, lambda some: apart.run(inputs, lambda cluster: None, some))
    surveyed = alone.look(apart=True)
    first = surveyed.clusters[0] if surveyed.run.findings else 0
    run = simulation.run_in(ResidentEnvironment(first), 0, inputs)
    if run.findings:
        findings = tuple(map(_not_resident, run.findings))
        return Residency(len(surveyed.clusters) + 1, replace(run, findings=findings), first)
    left_open = surveyed.left_open
    if surveyed.run.findings:
        left_open = (f"cluster {first} fails by itself: {surveyed.run.findings[0].message}",)
    return Residency(len(surveyed.clusters) + 1, left_open=left_open)


def _not_resident(finding: Finding) -> Finding:
    if finding.rule != "deadlock":
        return finding
    note = "only one cluster is resident here: without a cooperative launch, CTAs of other"
    return replace(
        finding,
        notes=(*finding.notes, f"{note} clusters need not run before these exit (0.4a)"),
        fix="launch cooperatively (k.launch(cooperative=True)) if all CTAs fit on the device, or "
        "do not wait for other clusters",
    )
