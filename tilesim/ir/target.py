"""GPU targets and their limits (SEMANTICS section I)."""

from __future__ import annotations

from tilesim.records import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """An architecture: what it has and how much of it.

    ``smem`` is the largest dynamic shared memory of a CTA in bytes; ``registers`` the register
    file of an SM; ``features`` the instruction groups it supports. ``multiprocessors``: how many
    SMs the smallest and the largest GPU of it have (whole ones, without MIG); ``threads`` and
    ``ctas`` are what one SM holds.
    """

    name: str
    features: frozenset[str]
    smem: int = 232448
    registers: int = 65536
    max_warps: int = 32
    portable_cluster: int = 8
    max_cluster: int = 8
    multiprocessors: tuple[int, int] = (1, 1)
    threads: int = 2048
    ctas: int = 32

    def __str__(self) -> str:
        return self.name


_HOPPER = frozenset({"mbarrier", "tma", "cluster", "elect"})
_SM_100 = _HOPPER | {
    "clc",
    "setmaxnreg",
    "ld.256bit",
    "ldmatrix.b8",
    "tensormap.replace",
    "tma.cp_mask",
    "tma.sub_byte.store",
    "multimem.fp8",
    "st.async.release",
}
_BLACKWELL = _SM_100 | {"tcgen05", "cta_group", "tma.gather4", "tma.im2col_w", "tma.sub_byte"}
_SM100 = _BLACKWELL | {"tcgen05.scale_input_d", "redux.f32"}

_H20_TO_H200 = (78, 132)

TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("sm_90", _HOPPER, max_cluster=16, multiprocessors=_H20_TO_H200),
        Target(
            "sm_90a",
            _HOPPER | {"wgmma", "setmaxnreg", "tensormap.replace"},
            max_cluster=16,
            multiprocessors=_H20_TO_H200,
        ),
        Target(
            "sm_100a",
            _SM100 | {"tcgen05.i8", "tcgen05.shift"},
            max_cluster=16,
            multiprocessors=(148, 148),
        ),
        # the f target runs on sm_103 as well
        Target("sm_100f", _SM100, max_cluster=16, multiprocessors=(148, 160)),
        Target("sm_103a", _SM100 | {"tcgen05.shift", "tcgen05.k96"}, multiprocessors=(148, 160)),
        Target(
            "sm_110a",
            _BLACKWELL | {"tcgen05.i8", "tcgen05.shift"},
            max_warps=32,
            multiprocessors=(12, 20),
            threads=1536,
            ctas=24,
        ),
        Target(
            "sm_120a",
            _SM_100 | {"mma.f8f6f4", "mma.block_scale"},
            smem=101376,
            multiprocessors=(20, 188),
            threads=1536,
            ctas=24,
        ),
    )
}
