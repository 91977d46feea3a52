"""See the package."""

from __future__ import annotations

import os
import sys
from typing import Any

from triton.backends.compiler import BaseBackend


def _never(target: object) -> bool:
    """No target is supported."""
    return False


Unused: Any = type("Unused", (BaseBackend,), {"supports_target": staticmethod(_never)})
# whatever else a version of Triton wants a backend to have
Unused.__abstractmethods__ = frozenset()


def _first(*loaded: object) -> None:
    """Triton's hook: the first kernel has been loaded."""
    from triton.knobs import runtime

    runtime.kernel_load_end_hook.remove(_first)
    try:
        from tilesim.triton.first_launch import begin

        begin(os.environ["TILESIM"], loaded)
    except Exception as error:
        print(f"tilesim: kernels are not checked: {error}", file=sys.stderr, flush=True)


def _watch() -> None:
    from triton.knobs import runtime

    # torch's Inductor would launch what it compiles by a launcher of its own
    config: Any = sys.modules.get("torch._inductor.config")
    if config is None:
        os.environ.setdefault("TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER", "0")
    else:
        config.use_static_cuda_launcher = False
    runtime.kernel_load_end_hook.add(_first)


if os.environ.get("TILESIM", "0") != "0":
    try:
        _watch()
    except Exception as error:
        print(
            f"tilesim: kernels are not checked, this Triton is not known: {error}",
            file=sys.stderr,
            flush=True,
        )
