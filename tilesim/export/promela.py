"""`to_promela`: the synchronisation of a program as a Promela model, for SPIN."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.errors import UsageError
from tilesim.export.control import Code
from tilesim.export.errors import NotExportable
from tilesim.export.machine import MachineCode, MachineProcess
from tilesim.export.model import Model
from tilesim.export.process import Process
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.ir.verify import verify
from tilesim.sim.machine.register_pool import launch_registers
from tilesim.transforms.lower import lower
from tilesim.wording import count

#: processes SPIN can run at a time
MOST_PROCESSES = 255


def to_promela(program: Program | Mir, cluster: int = 0) -> str:
    """One cluster of ``program`` as a Promela model of its synchronisation.

    Every warp is a process; one more completes asynchronous copies and arrivals, each at any time
    after its issue. Modelled are mbarriers with arrivals, bytes and phases (SEMANTICS A.3 to A.5),
    named barriers (E.1), the cluster barrier (D.1), remote arrivals, remote and multicast copies
    (B9, D9, D11), cp.async arrivals (C6), setmaxnreg (E14), exit (E9). A deadlock is an invalid
    end state; a broken rule (over-arrival, an mbarrier that is not live, a phase ended by
    expect_tx, a barrier joined twice, a copy into a CTA that has exited) a violated assertion.

    Not modelled: data, and with it races, fences, scopes, stores over a live barrier, loads from a
    CTA that may have exited, bulk stores at exit; whether an initialisation is visible or a peer
    has started (only whether it happened); warps that leave out a barrier of the whole CTA although
    they worked on (E8); integers wider than 32 bits.

    Of a program in machine form (PTX) each warp is followed, and every round of its loops is
    written out: what it does must follow from the launch.

    Args:
        program: verified first.
        cluster: which cluster of the grid; others are other models.

    Raises:
        InvalidProgram: the program is rejected before it runs.
        NotExportable: an instruction, condition or operand has no counterpart in the model.
        UsageError: there is no such cluster.
    """
    verify(program)
    kernel = program if isinstance(program, Program) else program.kernel
    clusters = kernel.ctas // kernel.cluster_size
    if not 0 <= cluster < clusters:
        raise UsageError(
            f"{kernel.name} has {count(clusters, 'cluster')}, there is no cluster {cluster}"
        )
    model = Model(kernel, cluster)
    processes = len(model.ctas) * kernel.warps + 1
    if processes > MOST_PROCESSES:
        raise NotExportable(
            f"kernel {kernel.name}", kernel.loc,
            f"its cluster needs {processes} processes, SPIN has at most {MOST_PROCESSES}",
        )  # fmt: skip
    code = [
        line
        for rank in range(len(model.ctas))
        for warp in range(kernel.warps)
        for line in ("", *_process(model, program, rank, warp))
    ]
    lines = [*_header(model), *model.prelude(), *code, "", *model.engine()]
    return "\n".join(lines) + "\n"


def _process(model: Model, program: Program | Mir, rank: int, warp: int) -> Iterator[str]:
    if isinstance(program, Program):
        process = Process(model, rank, warp, launch_registers(lower(program)))
        return process.text(Code(process).block(program.body))
    machine = MachineProcess(model, program, rank, warp, launch_registers(program))
    return machine.text(MachineCode(machine, program).nodes())


def _header(model: Model) -> Iterator[str]:
    program = model.program
    several = f"CTAs {', '.join(map(str, model.ctas))}" if len(model.ctas) > 1 else "one CTA"
    yield f"/* {program.name}, cluster {model.cluster}: {several}, {program.warps} warps each."
    yield "   Written by tilesim export --promela; to verify it:"
    yield "   spin -a FILE && gcc -O2 -DSAFETY -o pan pan.c && ./pan   (search depth: -m)"
    yield "   Rules such as A13 are those of tilesim's semantics. */"
