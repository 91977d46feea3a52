"""Records what tilus' kernels would launch, on a machine without a GPU.

tilus compiles a kernel and the host function that launches it to one library. Here the library has
PTX instead of machine code, and the host function is called in a process of its own against the
stand-in for CUDA that `tilesim.capture` has: tensor maps are encoded and parameters are laid out
as for the GPU.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import tvm_ffi
from tilus import option, utils
from tilus import target as targets
from tilus.hidet.backend.build import NVCC
from tilus.lang import instantiated_script
from tilus.lang.instantiated_script import InstantiatedScript
from tilus.utils import bench_utils

from tilesim.capture.build import built
from tilesim.capture.folder import Folder
from tilesim.capture.program import against_stub
from tilesim.errors import UsageError
from tilesim.ptx.launch import Launch
from tilesim.recording import Launched, Skipped, once
from tilesim.recording.tensors import storage

_LAUNCH = Path(__file__).parent / "launch.py"
#: the host function in the source that tilus makes: its parameters
_SIGNATURE = re.compile(r"\bvoid tilus_launch\(([^)]*)\)")
_FILE = re.compile(r'(\.file\s+\d+\s+)"[^"]*/source\.cu"')


class _Kernels(Folder):
    """Takes kernels as they are captured, with the source that tilus made."""

    def __init__(self, path: Path, source: str, record: Callable[[Launched], None]) -> None:
        super().__init__(path)
        self._source = source
        self._record = record

    def save(self, ptx: str, launch: Launch, cubin: bytes = b"") -> None:
        """Hands the launch on, without machine code."""
        file = f"{launch.entry}.cu"
        text = _FILE.sub(rf'\1"{file}"', ptx)
        self._record(Launched(text, launch, self._source, file))


class Compiled:
    """A compiled kernel in the place of tilus' own: calling it records its launches."""

    def __init__(self, program_dir: str | Path, record: Callable[[Launched], None]) -> None:
        self.program_dir = Path(program_dir)
        self._record = record

    def get_launch_func(self) -> Callable[..., None]:
        """What tilus calls with the arguments of the kernel."""
        return self

    def __call__(self, *arguments: Any) -> None:
        """Records the launches with these arguments.

        Raises:
            UsageError: the host function fails.
        """
        module = self.program_dir / "module"
        source = (module / "source.cu").read_text()
        library = str(module / "lib.so")
        values = json.dumps(list(zip(_types(source), map(_value, arguments), strict=True)))
        ffi = tvm_ffi.libinfo.find_libtvm_ffi()
        command = [sys.executable, "-I", str(_LAUNCH), library, ffi, values]
        (arch,) = re.findall(r"arch=compute_(\w+)", (module / "compile.sh").read_text())
        with TemporaryDirectory() as folder:
            kernels = _Kernels(Path(folder), source, self._record)
            if against_stub(command, f"sm_{arch}", kernels):
                raise UsageError(f"the host function in {module / 'source.cu'} fails")


def _types(source: str) -> list[str]:
    """The type of each parameter of the host function; pointers are ``*``."""
    found = _SIGNATURE.search(source)
    if found is None:
        raise UsageError("the source that tilus made has no function tilus_launch: not read")
    params = [p.strip() for p in found[1].split(",") if p.strip()]
    return ["*" if "*" in p else p.split()[0] for p in params]


def _value(argument: Any) -> object:
    """What `tilesim.tilus.launch` takes for an argument."""
    if argument is None or isinstance(argument, int | float):
        return argument
    key, size, offset = storage(argument)
    return [key, size, offset]


def _to_ptx(nvcc: Any, command: str, *arguments: Any) -> None:
    """Compiles as tilus does, up to PTX, the host function in a hurry; there need not be a driver
    to link with."""
    to_ptx = re.sub(r"(arch=compute_(\w+)),code=sm_\2", r"\1,code=compute_\2", command)
    _compile(nvcc, f"{to_ptx.replace('-O3', '-O0')} -L{built().parent}", *arguments)


_compile = NVCC.run_compile_command


@contextmanager
def recording(
    target: str,
    record: Callable[[Launched], None],
    *,
    tensors: str = "meta",
    skip: Callable[[Skipped], None] = lambda skipped: None,
) -> Iterator[None]:
    """Within it, every launch of a tilus kernel is handed to ``record`` instead of made.

    To be used within `torch_without_gpu`. Of an autotuned kernel the first configuration is
    launched (``debug_schedule`` of the class chooses another one), and ``skip`` is told how many
    are left out.
    """
    #: what was compiled here, by script
    known: dict[Any, dict[str, Any]] = {}
    call_script, get_option = InstantiatedScript.__call__, option.get_option

    def call(script: Any, *args: Any, **options: Any) -> Any:
        if script not in known:
            first, *others = script.schedules
            known[script] = {"schedules": [first], "jit_instances": {}, "dispatch_table": {}}
            if others:
                left = f"{len(others)} of {len(others) + 1} configurations"
                skip(
                    Skipped(
                        script.script_name,
                        left,
                        "only the first configuration of an autotuned kernel is run",
                    )
                )
        with patch.multiple(script, **known[script]):
            return call_script(script, *args, **options)

    def compiled(program_dir: str | Path) -> Compiled:
        return Compiled(program_dir, record)

    with ExitStack() as stack:
        own = {
            "cache_dir": stack.enter_context(TemporaryDirectory()), "parallel_workers": 1,
        }  # fmt: skip
        for owner, name, ours in (
            (targets, "_target", getattr(targets, f"nvgpu_{target.replace('_', '')}")),
            (option, "get_option", lambda name: own[name] if name in own else get_option(name)),
            (NVCC, "run_compile_command", _to_ptx), (InstantiatedScript, "__call__", call),
            (instantiated_script, "load_compiled_program", compiled),
            (utils, "benchmark_func", once), (bench_utils, "benchmark_func", once),
        ):  # fmt: skip
            stack.enter_context(patch.object(owner, name, ours))
        yield
