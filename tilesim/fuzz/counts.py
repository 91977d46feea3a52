"""What the parameters of a kernel count, by their names, and the values at which rings go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

What = Literal["stages", "trips", "tiles"]

#: parameters by what their name says
USUAL: dict[What, tuple[str, ...]] = {
    "stages": ("stages", "num_stages", "depth_stages", "pipe_stages"),
    "trips": ("trips", "iterations", "iters", "n", "num_tiles_k", "k_tiles", "count", "items"),
    "tiles": ("tiles", "num_tiles", "work_items"),
}
#: stages of a kernel that does not say how many it has
_STAGES = 2


def counts(default: object) -> bool:
    """Whether a parameter with this default is a number of something."""
    return isinstance(default, int) and not isinstance(default, bool)


def counting(params: Mapping[str, Any], what: What) -> tuple[str, ...]:
    """The parameters that count stages, trips or tiles, by their names; ``params``: defaults."""
    found = [name for name in USUAL[what] if name in params]
    found += [name for name in params if name.endswith(f"_{what}") and name not in found]
    return tuple(name for name in found if counts(params[name]))


def rounds(params: Mapping[str, Any]) -> tuple[int, ...]:
    """Trip counts around one and two rounds of a kernel's ring, none left out between them where
    the ring is small."""
    stages = max((params[name] for name in counting(params, "stages")), default=_STAGES)
    if stages <= 8:
        return tuple(range(1, 2 * stages + 2))
    around = (n + step for n in (stages, 2 * stages) for step in (-1, 0, 1))
    return (1, 2, *around)
