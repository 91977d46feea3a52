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


def indices(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Numbers of rows or classes."""
    return torch.zeros(shape, device="cuda", dtype=dtype)


def places(*shape: int) -> torch.Tensor:
    """Numbers of pages, and where sequences begin."""
    return indices(*shape, dtype=torch.int32)


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


def flashinfer_python() -> Iterator[Call]:
    """Products on part of the GPU, norms, and parts of an attention put together."""
    from flashinfer.triton import activation, cascade, norm, sm_constraint_gemm

    a, b, bt = numbers(1024, 2048), numbers(2048, 1024), numbers(1024, 2048)
    yield "gemm", lambda: sm_constraint_gemm.gemm(a, b)
    yield "gemm_persistent", lambda: sm_constraint_gemm.gemm_persistent(a, b, num_sms=64)
    yield (
        "gemm_descriptor_persistent",
        lambda: sm_constraint_gemm.gemm_descriptor_persistent(a, bt, num_sms=64),
    )
    yield "silu", lambda: activation.silu_and_mul(numbers(1024, 8192))
    v, s = numbers(1024, 32, 128), numbers(1024, 32, dtype=torch.float32)
    yield "merge_state", lambda: cascade.merge_state(v, s, v, s)
    several = numbers(1024, 4, 32, 128), numbers(1024, 4, 32, dtype=torch.float32)
    yield "merge_states", lambda: cascade.merge_states(*several)
    x = numbers(1024, 4096)
    yield "rms_norm", lambda: norm.rms_norm(x, numbers(4096), numbers(1024, 4096), 1e-6)


def lmdeploy() -> Iterator[Call]:
    """Products of 8 bits with scales of blocks, also in Gluon, and what stands around them."""
    from lmdeploy.pytorch.kernels.cuda.activation import silu_and_mul
    from lmdeploy.pytorch.kernels.cuda.blocked_fp8_gemm_gluon import fp8_gemm_nt
    from lmdeploy.pytorch.kernels.cuda.blocked_gemm_fp8 import blocked_gemm_fp8, quant_fp8
    from lmdeploy.pytorch.kernels.cuda.rms_norm import rms_norm

    e4m3, f32 = torch.float8_e4m3fn, torch.float32

    def gluon(m: int, n: int, k: int) -> None:
        a = numbers(m, k, dtype=e4m3), numbers(k // 128, m, dtype=f32).T
        b = numbers(n, k, dtype=e4m3), numbers(n // 128, k // 128, dtype=f32)
        fp8_gemm_nt(a, b, numbers(m, n), None)

    yield "one role", lambda: gluon(64, 4096, 2048)
    yield "transposed", lambda: gluon(8, 4096, 8192)
    yield "two roles", lambda: gluon(256, 8192, 2048)
    yield "persistent", lambda: gluon(2048, 4096, 2048)
    a = numbers(1024, 2048, dtype=e4m3), numbers(1024, 16, dtype=f32)
    b = numbers(2048, 4096, dtype=e4m3), numbers(16, 32, dtype=f32)
    yield "blocked_gemm_fp8", lambda: blocked_gemm_fp8(*a, *b)
    yield "quant_fp8", lambda: quant_fp8(numbers(1024, 4096), 128)
    yield "rms_norm", lambda: rms_norm(numbers(1024, 4096), numbers(4096))
    yield "silu_and_mul", lambda: silu_and_mul(numbers(1024, 8192))


def torchao() -> Iterator[Call]:
    """Quantisation by blocks, and a product of 8 bits."""
    from torchao.prototype.blockwise_fp8_training import kernels
    from torchao.prototype.quantized_training.int8_mm import scaled_int8_mm_cuda

    x, w = numbers(1024, 2048), numbers(2048, 2048)
    yield "lhs", lambda: kernels.triton_fp8_blockwise_act_quant_lhs(x)
    yield "rhs", lambda: kernels.triton_fp8_blockwise_act_quant_rhs(x)
    yield "weight", lambda: kernels.triton_fp8_blockwise_weight_quant_rhs(w)
    a, b = (numbers(1024, 2048, dtype=torch.int8) for _ in range(2))
    yield "int8", lambda: scaled_int8_mm_cuda(a, b.T, numbers(1024), numbers(1024))


def conch_triton_kernels() -> Iterator[Call]:
    """Attention on pages, products of few bits, and what stands around them."""
    from conch.ops.attention.paged_attention import paged_attention
    from conch.ops.attention.varlen_attention import varlen_attention
    from conch.ops.embedding.rotary_embedding import rotary_embedding
    from conch.ops.quantization.gemm import mixed_precision_gemm, scaled_gemm
    from conch.ops.vllm.reshape_and_cache import reshape_and_cache

    half, f32, i8 = torch.float16, torch.float32, torch.int8
    cache = numbers(256, 16, 8, 128)
    yield (
        "paged_attention",
        lambda: paged_attention(numbers(8, 32, 128), cache, cache, places(8, 64), places(8)),
    )
    yield (
        "varlen_attention",
        lambda: varlen_attention(
            numbers(1024, 32, 128), cache, cache, places(9), 128, places(8), 1024, places(8, 64),
            causal=True,
        ),
    )  # fmt: skip
    x, scales = numbers(256, 2048, dtype=half), numbers(16, 2048, dtype=half)
    yield (
        "mixed_precision_gemm",
        lambda: mixed_precision_gemm(x, places(256, 2048), scales, None, 4, 8, 128),
    )
    a, b = numbers(256, 2048, dtype=i8), numbers(2048, 2048, dtype=i8)
    rows, columns = numbers(256, 1, dtype=f32), numbers(2048, 1, dtype=f32)
    yield "scaled_gemm", lambda: scaled_gemm(a, b, rows, columns, half)
    key = numbers(1024, 8, 128)
    yield "reshape_and_cache", lambda: reshape_and_cache(key, key, cache, cache, indices(1024))
    q, k, angles = numbers(1024, 4096), numbers(1024, 1024), numbers(4096, 128)
    yield "rotary_embedding", lambda: rotary_embedding(indices(1024), q, k, 128, angles)


def vllm() -> Iterator[Call]:
    """Attention, state space models, and operations that do not depend on the batch."""
    from vllm.model_executor.determinism import batch_invariant
    from vllm.model_executor.layers.mamba.ops import ssd_bmm, ssd_chunk_scan, ssd_chunk_state
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd
    from vllm.v1.attention.ops.triton_merge_attn_states import merge_attn_states
    from vllm.v1.attention.ops.triton_prefill_attention import context_attention_fwd

    f32 = torch.float32
    q, pages = numbers(8, 32, 128), numbers(4096, 8, 128)
    logits = numbers(8, 32, 4, 129, dtype=f32)
    yield (
        "decode",
        lambda: decode_attention_fwd(
            q, pages, pages, numbers(8, 32, 128), numbers(8, 32, dtype=f32), places(8, 512),
            places(8), logits, 4, 0.1,
        ),
    )  # fmt: skip
    o, kv, lse = numbers(1024, 32, 128), numbers(1024, 8, 128), numbers(32, 1024, dtype=f32)
    yield "prefill", lambda: context_attention_fwd(o, kv, kv, o, places(8), places(8), 256)
    yield "merge", lambda: merge_attn_states(numbers(1024, 32, 128), o, lse, o, lse)
    yield "log_softmax", lambda: batch_invariant.log_softmax(numbers(256, 32000))
    yield "mean", lambda: batch_invariant.mean_dim(numbers(256, 512, 64), 1)
    chunks, size, heads = 4, 256, 8
    x, bc = numbers(chunks * size, heads, 64), numbers(chunks * size, 1, 128)
    starts, of_heads = places(chunks + 1), numbers(heads, chunks, size, dtype=f32)
    cb, states = numbers(chunks, 1, size, size, dtype=f32), numbers(chunks, heads, 64, 128)
    yield (
        "chunk_scan",
        lambda: ssd_chunk_scan._chunk_scan_fwd(
            cb, x, of_heads, of_heads, bc, states, starts, x, places(chunks), D=numbers(heads)
        ),
    )
    yield "bmm_chunk", lambda: ssd_bmm._bmm_chunk_fwd(bc, bc, size, starts)
    yield (
        "chunk_cumsum",
        lambda: ssd_chunk_state._chunk_cumsum_fwd(
            numbers(chunks * size, heads), numbers(heads, dtype=f32), size, starts
        ),
    )
    yield "chunk_state", lambda: ssd_chunk_state._chunk_state_fwd(bc, x, of_heads, of_heads, starts)


PACKAGES: dict[str, Callable[[], Iterator[Call]]] = {
    "liger-kernel": liger_kernel, "fla-core": fla_core, "cut-cross-entropy": cut_cross_entropy,
    "xformers": xformers, "bitsandbytes": bitsandbytes, "flashinfer-python": flashinfer_python,
    "lmdeploy": lmdeploy, "torchao": torchao, "conch-triton-kernels": conch_triton_kernels,
    "vllm": vllm,
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
