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

_TESTS = Path(__file__).parents[2] / "triton"


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
    file: str
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
        path = _TESTS / self.file
        lines = path.read_text().splitlines()
        found = frozenset(f"{path.name}:{n}" for n, line in enumerate(lines, 1) if text in line)
        assert found, f"{text!r} is not in {path}"
        return found


def _described(torch: Any, shape: Sequence[int], box: Sequence[int], **layout: Any) -> Any:
    """A tensor of 16-bit numbers with a descriptor of its boxes."""
    gl = import_module("triton.experimental.gluon.language")
    hopper = import_module("triton.experimental.gluon.nvidia.hopper")
    where = gl.NVMMASharedLayout.get_default_for(list(box), gl.float16, **layout)
    data = torch.zeros(tuple(shape), dtype=torch.float16, device="cuda")
    return hopper.TensorDescriptor.from_tensor(data, list(box), where)


def _copied(torch: Any) -> None:
    kernels = import_module("tests.silicon.hangs.triton_kernels")
    x, y = (_described(torch, (64, 64), [64, 64]) for _ in range(2))
    kernels.copied[(1,)](x, y, PHASE=1, num_warps=4)


def _persistent(fault: str) -> Callable[[Any], None]:
    def start(torch: Any) -> None:
        specialised = import_module("tests.triton.gluon.specialised")
        a, b = _described(torch, (192, 192), [64, 64]), _described(torch, (192, 128), [64, 64])
        c = _described(torch, (192, 128), [64, 64])
        specialised.persistent[(2,)](a, b, c, 3, 2, 3, STAGES=3, FAULT=fault, num_warps=4)

    return start


def _spinning(torch: Any) -> None:
    kernels = import_module("tests.silicon.hangs.triton_kernels")
    flags = torch.zeros(2, dtype=torch.int32, device="cuda")
    kernels.spinning[(2,)](flags, num_warps=4)


_FULL = "mbarrier.wait(full.index(slot), parity)"
_EMPTY = "mbarrier.wait(empty.index(slot), parity)"
_SPECIALISED = "gluon/specialised.py"


def _pipeline(name: str, fault: str, *culprits: str) -> TritonTask:
    """The two roles of the persistent product wait for each other; which of the warps from 4 on
    loads is the compiler's choice."""
    waits = Wait("0-3", "mbarrier", _FULL), Wait("4-7", "mbarrier", _EMPTY, one=True)
    return TritonTask(
        name, "persistent", _SPECIALISED, _persistent(fault), waits, culprits, "0-1"
    )  # fmt: skip


TASKS: tuple[TritonTask, ...] = (
    _pipeline("empty-count", "empty: count of two", "count=2 if FAULT"),
    _pipeline("no-release", "multiplier: no release", "warpgroup_mma_wait(0, deps=[acc]))"),
    _pipeline("more-bytes", "loader: more bytes expected", "2 * a.nbytes_per_cta"),
    _pipeline("loader-parity", "loader: other parity", "parity = parity ^ 1", _EMPTY),
    TritonTask(
        "phase", "copied", "../silicon/hangs/triton_kernels.py", _copied,
        (Wait("0-3", "mbarrier", "mbarrier.wait(full, PHASE)"),), ("mbarrier.wait(full, PHASE)",),
    ),
    TritonTask(
        "spinning", "spinning", "../silicon/hangs/triton_kernels.py", _spinning,
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
