"""What a cubin says of its kernels, and its control flow."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.gpu import needs
from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image, KernelInfo, KernelParameter
from tilesim.cubin.operands import mbarrier_operand
from tilesim.cubin.sass import Function

from . import compiled

pytestmark = [needs.compiler, needs.disassembler]

#: mbarrier instructions, and what `mbarrier_operand` says of them
MBARRIERS = (
    ("mbarrier.init.shared.b64 [%0], %1;", "init"),
    ("mbarrier.inval.shared.b64 [%0];", "other"),
    ("mbarrier.arrive.shared.b64 _, [%0], %1;", "arrive"),
    ("mbarrier.arrive_drop.shared.b64 _, [%0];", "arrive"),
    ("mbarrier.expect_tx.relaxed.cta.shared.b64 [%0], %1;", "arrive"),
    ("mbarrier.complete_tx.relaxed.cta.shared.b64 [%0], %1;", "arrive"),
    (
        "{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%0], %1; @p trap;}", "wait",
    ),
    (
        "{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @p trap;}", "wait",
    ),
)  # fmt: skip
OPERATIONS = "\n".join(
    f'asm volatile("{text}" :: "r"(s), "r"(n) : "memory");' for text, _ in MBARRIERS
)
SOURCE = (
    """
struct Parts { int a[5]; long b; };
__device__ __noinline__ int popcount(int x) { return __popc(x) + 1; }
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256, 1)
both(int *p, __grid_constant__ const Parts q, char c) {
  __shared__ int z[32];
  z[threadIdx.x & 31] = q.a[3];
  asm volatile("bar.sync 3, 64;" ::: "memory");
  p[0] = z[c];
}
extern "C" __global__ void branches(int *p, int n) {
  switch (n) {
    case 0: p[1] = popcount(n); break;
    case 1: p[2] = 3; __syncthreads(); break;
    case 2: p[3] = n / p[4]; break;
    case 3: p[4] = popcount(5); break;
    case 4: p[5] = p[6] / 7; break;
    case 5: asm volatile("trap;");
  }
  p[9] = popcount(n + 1);
}
extern "C" __global__ void __block_size__((128, 1, 1)) mbarriers(int n) {
  __shared__ unsigned long long b[4];
  unsigned s = (unsigned)__cvta_generic_to_shared(b);
"""
    + OPERATIONS
    + "\n}"
)


@pytest.fixture(scope="module", params=["sm_90a", "sm_100a"])
def image(request: pytest.FixtureRequest) -> Image:
    return compiled.image(SOURCE, request.param)


@pytest.fixture(scope="module")
def functions(image: Image) -> Mapping[str, Function]:
    return compiled.functions(image)


def info(image: Image, name: str) -> KernelInfo:
    (symbol,) = (one for one in compiled.kernels(image) if one.name == name)
    return image.info(symbol)


def test_what_a_kernel_takes(image: Image) -> None:
    found = info(image, "both")
    assert found.parameters == (
        KernelParameter(0, 0, 8), KernelParameter(1, 8, 32), KernelParameter(2, 40, 1),
    )  # fmt: skip
    assert image.arch in ("sm_90a", "sm_100a")
    assert (found.cluster, found.most_threads, found.block) == ((2, 1, 1), (256, 1, 1), None)
    assert found.shared == 1024 + 128
    assert info(image, "mbarriers").block == (128, 1, 1)


def test_what_each_mbarrier_instruction_does(functions: Mapping[str, Function]) -> None:
    does = [
        operand.does
        for one in functions["mbarriers"].code.values()
        if (operand := mbarrier_operand(one)) is not None
    ]
    assert does == [does for _, does in MBARRIERS]


def test_all_paths_are_followed(image: Image, functions: Mapping[str, Function]) -> None:
    assert info(image, "branches").branch_targets
    for function in functions.values():
        assert not function.unknown
        reached = function.reached([0])
        left = {one.opcode for pc, one in function.code.items() if pc not in reached}
        assert left <= {"NOP", "BRA"}  # what fills the end
        assert all(pc in function.code for after in function.successors.values() for pc in after)
        assert any(function.code[pc].base == "EXIT" for pc in reached)
    trap = next(pc for pc, one in functions["branches"].code.items() if one.opcode == "BPT.TRAP")
    assert functions["branches"].successors[trap] == ()


def test_a_call_comes_back_to_itself(functions: Mapping[str, Function]) -> None:
    function = functions["branches"]
    calls = [one for one in function.code.values() if one.base == "CALL"]
    assert len(calls) > 2
    returns = [pc for pc, one in function.code.items() if one.base == "RET"]
    assert any(set(function.successors[pc]) >= {calls[0].pc + 16, calls[-1].pc + 16}
               for pc in returns)  # fmt: skip
    last = function.reached([calls[-1].pc])
    assert calls[-1].pc + 16 in last
    assert calls[0].pc + 16 not in last


def test_what_is_no_cubin_is_refused() -> None:
    for data in (b"", b"\x7fELF", b"PK\3\4" * 40, b"\x7fELF" + bytes(100)):
        with pytest.raises(CubinError, match=r"x\.cubin: this is not a cubin"):
            Image(data, "x.cubin")


def test_a_cut_cubin_is_refused(image: Image) -> None:
    with pytest.raises(CubinError, match=r"damaged: .* do not fit into it"):
        Image(image.data[: len(image.data) // 2], "x.cubin")
