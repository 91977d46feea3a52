"""Small kernels in CUDA C++ of which each hangs in its own way (``hanging_kernels.cu``).

`KERNELS` has them by name. All are launched as ``f``, with the buffers ``x`` and ``y`` and the
number ``n``. The helpers are those of the kernels that `tests.ptx.test_cuda` compiles.
"""

from __future__ import annotations

from pathlib import Path

from tilesim.ptx.launch import Contents, Launch, Parameter, Pointer, Scalar
from tilesim.records import dataclass

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Hanging:
    """A kernel and its launch: CTAs, threads of each, CTAs of a cluster, the number ``n``."""

    source: str
    ctas: int = 1
    threads: int = 128
    cluster: int = 1
    n: int = 7
    cooperative: int = 0

    @property
    def launch(self) -> Launch:
        """How it is launched."""
        values: tuple[Parameter, ...] = (
            Pointer("x", 1 << 14),
            Pointer("y", 1 << 12, contents=Contents("u32", (0,) * 1024)),
            Scalar("n", "s32", self.n),
        )
        return Launch(
            "f", (self.ctas, 1, 1), (self.threads, 1, 1), (self.cluster, 1, 1),
            cooperative=bool(self.cooperative), params=values,
        )  # fmt: skip


def _kernels() -> dict[str, Hanging]:
    text = (_HERE / "hanging_kernels.cu").read_text()
    helpers, *parts = text.split("\n////")
    head = (_HERE.parent / "ptx" / "cuda" / "head.cu").read_text() + helpers + "\n"
    found = {}
    for part in parts:
        first, _, body = part.partition("\n")
        name, _, said = first.strip().partition(": ")
        numbers = {key: int(value) for key, _, value in (w.partition("=") for w in said.split())}
        found[name] = Hanging(head + body, **numbers)
    return found


KERNELS = _kernels()
