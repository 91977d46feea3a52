"""CUDA C++ as people write it: the programs of the tests, compiled by NVRTC, and by nvcc where it
is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from tests.autopsy.hanging_kernels import KERNELS
from tests.ptx.test_cuda import GRID, HEAD, SOURCES
from tests.ptx.test_cuda import compiled as by_nvrtc
from tests.ptx.test_cuda_blackwell import CTAS
from tests.ptx.test_cuda_blackwell import HEAD as BLACKWELL
from tests.silicon.hangs.task import NotCompiled, compiled, own_tasks


def kernels() -> Iterator[tuple[str, str]]:
    """Hopper's, Blackwell's, those that hang, and with nvcc those that hang a GPU."""
    for name in GRID:
        yield name, by_nvrtc(HEAD + (SOURCES / f"{name}.cu").read_text())
    for name in CTAS:
        yield f"{name}_100", by_nvrtc(BLACKWELL + (SOURCES / f"{name}.cu").read_text(), arch="100a")
    for name, hanging in KERNELS.items():
        yield f"hanging_{name}", by_nvrtc(hanging.source)
    if which("nvcc") is None:
        return
    with TemporaryDirectory() as made:
        folder = Path(made)
        for task in own_tasks(folder / "src"):
            try:
                yield task.id, compiled(task, "ptx", folder / "ptx").read_text()
            except NotCompiled:
                continue
