"""Kernels that torch.compile makes: what people write most, and no barriers of theirs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.translation.producers.scripts import recorded

_SCRIPT = """
import torch

def tensor(*shape, dtype=torch.float16):
    return torch.empty(shape, device="cuda", dtype=dtype)

@torch.compile
def softmax(x, y): return torch.nn.functional.softmax(x + y, dim=-1)

@torch.compile
def normalised(x, w): return torch.nn.functional.layer_norm(x, (x.shape[-1],), w)

@torch.compile
def column_sums(x): return x.sum(0), x.amax(0)

@torch.compile
def scan(x): return x.cumsum(-1)

@torch.compile
def ordered(x): return x.sort(-1).values

@torch.compile
def gathered(x, i): return torch.relu(x[i]) * 2

x = tensor(1024, 2048)
softmax(x, x)
normalised(x, tensor(2048))
column_sums(tensor(4096, 64))
scan(tensor(512, 1024, dtype=torch.float32))
ordered(tensor(64, 256))
gathered(x, tensor(64, dtype=torch.int64))
"""


def kernels() -> Iterator[tuple[str, str]]:
    """For Hopper and for Blackwell."""
    for target in ("sm_90a", "sm_100a"):
        for name, ptx in recorded(_SCRIPT, target, "--inductor"):
            yield f"{name}_{target}", ptx
