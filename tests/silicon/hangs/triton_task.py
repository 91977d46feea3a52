"""Triton and Gluon kernels that hang: ``python -m tests.silicon.hangs.triton_task NAME`` runs one.

They need torch with a GPU. Triton's PTX is found in its cache.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.silicon.hangs.answer import Answer, On, Place, numbers
from tilesim.records import dataclass

_SOURCE = Path(__file__).with_name("triton_kernels.py")


@dataclass(frozen=True)
class Wait:
    """Warps, or ``one`` of them, what they wait for, and a text of the line."""

    warps: str
    on: On
    text: str
    one: bool = False


@dataclass(frozen=True)
class TritonTask:
    """A kernel and how it is launched; ``culprits`` are texts of lines one of which is to be
    changed. Calls of Triton's library are inlined: a line is one of those of the frames."""

    name: str
    kernel: str
    start: Callable[[Any], None]
    waits: tuple[Wait, ...]
    culprits: tuple[str, ...] = ()
    ctas: str = "0"

    @property
    def ptx(self) -> str:
        """Where its PTX is found."""
        return "Triton's cache"

    @property
    def id(self) -> str:
        """Its name in the results."""
        return f"triton/{self.name}"

    @property
    def command(self) -> Sequence[str]:
        """Starts it in a process of its own."""
        return [sys.executable, "-m", "tests.silicon.hangs.triton_task", self.name]

    @property
    def answer(self) -> Answer:
        """What is right to say of it."""
        places = tuple(
            Place(
                self.kernel, numbers(self.ctas), numbers(wait.warps), wait.on,
                self._lines(wait.text), one=wait.one,
            )
            for wait in self.waits
        )  # fmt: skip
        culprits = frozenset(line for text in self.culprits for line in self._lines(text))
        return Answer(places, frozenset({"deadlock"}), culprits, whole=False)

    def _lines(self, text: str) -> frozenset[str]:
        lines = _SOURCE.read_text().splitlines()
        found = frozenset(f"{_SOURCE.name}:{n}" for n, line in enumerate(lines, 1) if text in line)
        assert found, f"{text!r} is not in {_SOURCE}"
        return found


_BLOCK, _TILES, _STAGES = 64, 8, 2
_KERNELS = "tests.silicon.hangs.triton_kernels"


def _tensors(torch: Any, tiles: int) -> tuple[Any, Any]:
    """A descriptor of tiles of 16-bit numbers, and memory for as many."""
    gl = import_module("triton.experimental.gluon.language")
    hopper = import_module("triton.experimental.gluon.nvidia.hopper")
    box = [_BLOCK, _BLOCK]
    where = gl.NVMMASharedLayout.get_default_for(box, gl.float16)
    x, y = (
        torch.zeros((tiles * _BLOCK, _BLOCK), dtype=torch.float16, device="cuda") for _ in range(2)
    )
    return hopper.TensorDescriptor.from_tensor(x, box, where), y


def _copied(torch: Any) -> None:
    import_module(_KERNELS).copied[(1,)](*_tensors(torch, 1), BLOCK=_BLOCK, PHASE=1, num_warps=4)


def _relayed(fault: str) -> Callable[[Any], None]:
    def start(torch: Any) -> None:
        import_module(_KERNELS).relayed[(1,)](
            *_tensors(torch, _TILES), _TILES, BLOCK=_BLOCK, STAGES=_STAGES, FAULT=fault,
            num_warps=4,
        )  # fmt: skip

    return start


def _spinning(torch: Any) -> None:
    flags = torch.zeros(2, dtype=torch.int32, device="cuda")
    import_module(_KERNELS).spinning[(2,)](flags, num_warps=4)


_FULL = "mbarrier.wait(full.index(slot), (i // STAGES) & 1)"
_EMPTY = "mbarrier.wait(empty.index(slot), parity)"


def _relay(fault: str, *culprits: str) -> TritonTask:
    """The two roles wait for each other; which of the warps from 4 on loads is the compiler's
    choice."""
    waits = Wait("0-3", "mbarrier", _FULL), Wait("4-7", "mbarrier", _EMPTY, one=True)
    return TritonTask(f"relayed-{fault}", "relayed", _relayed(fault), waits, culprits)


TASKS: tuple[TritonTask, ...] = (
    _relay("count", "count=2 if FAULT"),
    # the call of `stored` is inlined without a frame: its line is that of the store
    _relay("release", "stored(y, i, ring", 'if FAULT != "release"', "gl.store(y + i"),
    _relay("bytes", "BLOCK * BLOCK * 2 + 32"),
    _relay("parity", "parity = parity ^ 1", _EMPTY),
    TritonTask(
        "copied", "copied", _copied, (Wait("0-3", "mbarrier", "mbarrier.wait(full, PHASE)"),),
        ("mbarrier.wait(full, PHASE)",),
    ),
    TritonTask(
        "spinning", "spinning", _spinning,
        (Wait("0", "word", "while tl.atomic_add(flags + 1, 0) == 0"),), ctas="1",
    ),
)  # fmt: skip


def main(name: str) -> int:
    """Starts a kernel, and waits for its end."""
    task = next(task for task in TASKS if task.name == name)
    torch = import_module("torch")
    torch.zeros(1, device="cuda")
    task.start(torch)
    print("launched", flush=True)
    torch.cuda.synchronize()
    print("ended", flush=True)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    os._exit(code)
