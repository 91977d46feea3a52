"""Launch shape and capacity limits of the target (SEMANTICS D15, section I)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilesim.errors import Diagnostic
from tilesim.ir.loc import Loc
from tilesim.ir.program import Program

#: largest grid per dimension (CUDA programming guide, technical specifications)
MAX_GRID = ((1 << 31) - 1, 65535, 65535)
#: CTAs of a grid that is checked: what stands for all of them is looked for among all
MAX_CTAS = 1 << 24
_REGISTER_UNIT = 8
#: an instruction names 255 of them; a launch may ask for the next unit, as Triton's kernels do
_MAX_REGISTERS = 256


def check_launch(program: Program) -> Iterator[Diagnostic]:
    """Warps, grid, cluster and registers are within what the target can launch."""

    def problem(field: str, message: str, fix: str = "") -> Diagnostic:
        return Diagnostic("launch", message, _set_at(program, field), fix)

    target = program.target
    if not 1 <= program.warps <= target.max_warps:
        yield problem("warps", f"{program.warps} warps per CTA is outside 1..{target.max_warps}")
    for axis, size, limit in zip("xyz", program.grid, MAX_GRID, strict=True):
        if not 1 <= size <= limit:
            yield problem("grid", f"grid {axis} = {size} is outside 1..{limit}")
    if program.ctas > MAX_CTAS:
        yield problem(
            "grid",
            f"a grid of {program.ctas:,} CTAs; at most {MAX_CTAS:,} are simulated",
            "check the kernel with a smaller grid",
        )
    for axis, size, cluster in zip("xyz", program.grid, program.cluster, strict=True):
        if cluster < 1 or size % cluster:
            yield problem(
                "cluster" if "cluster" in program.set_at else "grid",
                f"grid {axis} = {size} is not a multiple of the cluster's {cluster} (D15)",
                "a grid consists of whole clusters",
            )
    if program.cluster_size > target.max_cluster:
        yield problem(
            "cluster",
            f"a cluster of {program.cluster_size} CTAs, {target} has at most {target.max_cluster} "
            "(D15)",
        )
    if program.cluster_size > 1 and "cluster" not in target.features:
        yield Diagnostic("target", f"{target} has no clusters", _set_at(program, "cluster"))
    yield from _check_registers(program, problem)


def _set_at(program: Program, field: str) -> Loc:
    """The line that sets a field of the launch: that of ``k.launch``, or the kernel's own."""
    return program.set_at.get(field, program.loc)


def _check_registers(program: Program, problem: Callable[..., Diagnostic]) -> Iterator[Diagnostic]:
    registers, limit = program.registers, program.target.registers
    if registers is None:
        return
    if not _REGISTER_UNIT <= registers <= _MAX_REGISTERS:
        yield problem(
            "registers", f"{registers} registers per thread is outside 8..{_MAX_REGISTERS}"
        )
    elif registers * 32 * program.warps > limit:
        yield problem(
            "registers",
            f"{program.warps} warps with {registers} registers per thread need "
            f"{registers * 32 * program.warps} registers, an SM has {limit}",
            f"at most {limit // (256 * program.warps) * _REGISTER_UNIT} per thread",
        )


def check_shared_memory(program: Program) -> Iterator[Diagnostic]:
    """Every allocation lies in the shared memory that is requested, and that in the SM's."""
    limit = program.target.smem
    if program.smem_bytes is not None and not 0 <= program.smem_bytes <= limit:
        yield Diagnostic(
            "launch",
            f"smem_bytes = {program.smem_bytes}, a CTA of {program.target} can have {limit} bytes",
            _set_at(program, "smem_bytes"),
        )
        return
    available = limit if program.smem_bytes is None else program.smem_bytes
    what = f"{program.target} has {limit}" if program.smem_bytes is None else (
        f"the launch requests smem_bytes = {available}"
    )  # fmt: skip
    for item in program.shared:
        end = program.placement[item.name] + item.nbytes
        if end > available:
            yield Diagnostic(
                "out-of-bounds",
                f"{item.name} takes {item.nbytes} bytes at {program.placement[item.name]} and ends "
                f"at {end}; {what} bytes of shared memory per CTA",
                item.loc,
                "use fewer stages or smaller tiles"
                if program.smem_bytes is None
                else f"request at least {program.smem_used} bytes",
            )
