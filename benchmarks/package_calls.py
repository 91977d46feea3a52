"""Calls of what packages of the index carry in Triton, on tensors of usual sizes.

Run by `benchmarks.packages` under ``tilesim capture``, in an environment that has the package and
torch: ``package_calls.py PACKAGE``. A call that does not work without data is said and left out. Of
an autotuned kernel's configurations the first and the last are taken.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner

Call = tuple[str, Callable[[], object]]


def numbers(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor on the GPU that is not there."""
    return torch.empty(shape, device="cuda", dtype=dtype)


def indices(*shape: int) -> torch.Tensor:
    """Numbers of rows or classes."""
    return torch.zeros(shape, device="cuda", dtype=torch.int64)


def liger_kernel() -> Iterator[Call]:
    """Norms, activations and losses of a model of width 4096."""
    from liger_kernel import ops

    x, y, w = numbers(2048, 4096), numbers(2048, 4096), numbers(4096)
    b, rstd, mean = (
        numbers(4096),
        numbers(2048, dtype=torch.float32),
        numbers(2048, dtype=torch.float32),
    )
    yield "rms_norm", lambda: ops.rms_norm_forward(x, w, 1e-6, 0.0, "llama", None)
    yield (
        "rms_norm backward",
        lambda: ops.rms_norm_backward(y, x, w, rstd, 0.0, "llama", 4096, 8, False, None),
    )
    yield "layer_norm", lambda: ops.layer_norm_forward(x, w, b, 1e-6)
    yield "layer_norm backward", lambda: ops.layer_norm_backward(y, x, w, b, mean, rstd)
    yield "fused_add_rms_norm", lambda: ops.fused_add_rms_norm_forward(x, y, w, 1e-6, 0.0, "llama")
    yield "swiglu", lambda: ops.swiglu_forward(x, y)
    yield "swiglu backward", lambda: ops.swiglu_backward(x, y, numbers(2048, 4096))
    yield "geglu", lambda: ops.geglu_forward(x, y)
    yield "geglu backward", lambda: ops.geglu_backward(x, y, numbers(2048, 4096))
    yield "relu_squared", lambda: ops.LigerReLUSquaredFunction.apply(x)
    yield "softmax", lambda: ops.LigerSoftmaxFunction.apply(x)
    yield "sparsemax", lambda: ops.LigerSparsemaxFunction.apply(x, -1)
    yield "dyt", lambda: ops.LigerDyTFunction.apply(x, numbers(1), w, b)
    yield "poly_norm", lambda: ops.LigerPolyNormFunction.apply(x, numbers(3), numbers(1), 1e-6)
    yield (
        "group_norm",
        lambda: ops.LigerGroupNormFunction.apply(
            numbers(8, 64, 256), numbers(64), numbers(64), 64, 8, 1e-6
        ),
    )
    logits, target = numbers(1024, 32000), indices(1024)
    yield (
        "cross_entropy",
        lambda: ops.cross_entropy_forward(
            logits, target, None, -100, 0.0, 0.0, "mean", None, False
        ),
    )
    p, q = numbers(1024, 32000), numbers(1024, 32000)
    yield "kl_div", lambda: ops.LigerKLDivLossFunction.apply(p, q)
    yield "jsd", lambda: ops.LigerJSDFunction.apply(p, q)
    yield "tvd", lambda: ops.LigerTVDLossFunction.apply(p, q)
    angles = numbers(1, 1024, 128)
    yield (
        "rope",
        lambda: ops.rope_forward(
            numbers(2, 32, 1024, 128), numbers(2, 8, 1024, 128), angles, angles
        ),
    )


def fla_core() -> Iterator[Call]:
    """Linear attention: 2 sequences of 1024, 4 heads of 64."""
    from fla.ops.attn import parallel_attn
    from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule
    from fla.ops.gla import chunk_gla, fused_recurrent_gla
    from fla.ops.retention import chunk_retention, parallel_retention
    from fla.ops.simple_gla import chunk_simple_gla, parallel_simple_gla
    from fla.ops.utils import chunk_local_cumsum, mean_pooling

    q, k, v = (numbers(2, 1024, 4, 64) for _ in range(3))
    gate, beta = numbers(2, 1024, 4, dtype=torch.float32), numbers(2, 1024, 4)
    gates = numbers(2, 1024, 4, 64, dtype=torch.float32)
    yield "cumsum", lambda: chunk_local_cumsum(gate, 64)
    yield "mean_pooling", lambda: mean_pooling(v, 64)
    yield "retention", lambda: chunk_retention(q, k, v)
    yield "parallel_retention", lambda: parallel_retention(q, k, v)
    yield "simple_gla", lambda: chunk_simple_gla(q, k, v, g=gate)
    yield "parallel_simple_gla", lambda: parallel_simple_gla(q, k, v, g=gate)
    yield "gla", lambda: chunk_gla(q, k, v, gates)
    yield "fused_recurrent_gla", lambda: fused_recurrent_gla(q, k, v, gates)
    yield "delta_rule", lambda: chunk_delta_rule(q, k, v, beta)
    yield "fused_recurrent_delta_rule", lambda: fused_recurrent_delta_rule(q, k, v, beta)
    yield "attn", lambda: parallel_attn(q, k, v)


def cut_cross_entropy() -> Iterator[Call]:
    """The loss without logits."""
    from cut_cross_entropy.cce_lse_forward import cce_lse_forward_kernel
    from cut_cross_entropy.indexed_dot import indexed_neg_dot_forward_kernel

    e, c = numbers(1024, 2048), numbers(32000, 2048)
    yield "lse", lambda: cce_lse_forward_kernel(e, c)
    yield "indexed dot", lambda: indexed_neg_dot_forward_kernel(e, c, indices(1024))


def xformers() -> Iterator[Call]:
    """Norms and tiled products."""
    from xformers.ops._triton.rmsnorm_kernels import _rms_norm_forward
    from xformers.ops._triton.tiled_matmul_kernels import _launch_triton_matmul

    x = numbers(2048, 4096)
    yield "rms_norm", lambda: _rms_norm_forward(x, numbers(4096), 1e-6)
    tiles = ([[numbers(512, 512)]], [[numbers(512, 512)]], [[numbers(512, 512)]])
    yield "tiled_matmul", lambda: _launch_triton_matmul(*tiles, [512], [512], [512])


def bitsandbytes() -> Iterator[Call]:
    """Quantisation."""
    from bitsandbytes.backends.triton import kernels_4bit

    x = numbers(2048, 4096)
    absmax, out = numbers(2048 * 64, dtype=torch.float32), numbers(2048 * 2048, dtype=torch.uint8)
    yield (
        "4 bits",
        lambda: kernels_4bit.quantize_4bit_blockwise_triton(
            x, 64, "nf4", 2048 * 64, absmax, x.numel(), out
        ),
    )


PACKAGES: dict[str, Callable[[], Iterator[Call]]] = {
    "liger-kernel": liger_kernel, "fla-core": fla_core, "cut-cross-entropy": cut_cross_entropy,
    "xformers": xformers, "bitsandbytes": bitsandbytes,
}  # fmt: skip


def first_and_last(tuner: Any, *args: Any, **options: Any) -> None:
    """An autotuner with two of its configurations."""
    made(tuner, *args, **options)
    if len(tuner.configs) > 2:
        tuner.configs = [tuner.configs[0], tuner.configs[-1]]


made = Autotuner.__init__


def main() -> None:
    """See the module."""
    Autotuner.__init__ = first_and_last
    for name, call in PACKAGES[sys.argv[1]]():
        try:
            call()
        except Exception as error:
            what = str(error).strip().splitlines() or [""]
            print(f"{name}: {type(error).__name__}: {what[0]}", file=sys.stderr)


if __name__ == "__main__":
    main()
