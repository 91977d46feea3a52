"""Helion: a matrix product, by configuration."""

from __future__ import annotations

from collections.abc import Iterator

from tests.translation.producers.scripts import recorded

_SCRIPT = """
import helion
import helion.language as hl
import torch

def product(x, y):
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float16, device=x.device)
    for m, n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([m, n], dtype=torch.float32)
        for k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[m, k], y[k, n])
        out[m, n] = acc.to(torch.float16)
    return out

x = torch.empty(1024, 512, device="cuda", dtype=torch.float16)
for tile, warps, stages, indexing in (
    ([64, 64, 32], 4, 3, "pointer"), ([128, 128, 64], 8, 4, "tensor_descriptor"),
    ([128, 64, 64], 4, 1, "tensor_descriptor"), ([128, 128, 32], 4, 2, "block_ptr"),
):
    config = helion.Config(
        block_sizes=tile, num_warps=warps, num_stages=stages, indexing=indexing
    )
    helion.kernel(config=config)(product)(x, x.T.contiguous())
"""


def kernels() -> Iterator[tuple[str, str]]:
    """For Hopper and for Blackwell."""
    for target in ("sm_90a", "sm_100a"):
        for name, ptx in recorded(_SCRIPT, target):
            yield f"{name}_{target}", ptx
