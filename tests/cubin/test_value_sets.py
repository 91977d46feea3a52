"""Values that a register can have: kernels whose mbarriers are functions of what they read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import pytest

from tests.gpu import needs
from tilesim.cubin import value_sets
from tilesim.cubin.operands import mbarrier_operand
from tilesim.cubin.sass import Function
from tilesim.cubin.value_graph import Known
from tilesim.cubin.value_sets import ValueSets

from . import compiled

pytestmark = [needs.compiler, needs.disassembler]

HEAD = """
#define ARRIVE(i) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(s + 8 * (i)) : "memory")
#define KERNEL(name) extern "C" __global__ void name(int *p, int n, unsigned q)
#define BARRIERS __shared__ unsigned long long b[64]; \\
    unsigned s = (unsigned)__cvta_generic_to_shared(b), t = threadIdx.x
__device__ __noinline__ int chosen(int x) { return x & 1 ? __popc(x) & 1 : 6; }
"""

#: bodies of kernels, and the numbers of the mbarriers that they can arrive at, for all values of
#: what they read
KERNELS: dict[str, tuple[str, Iterable[int]]] = {
    "number": ("ARRIVE(5);", [5]),
    "mask": ("for (int i = 0; i < n; ++i) ARRIVE(i & 3);", range(4)),
    "masked_parameter": ("ARRIVE(q & 7);", range(8)),
    "third": ("for (unsigned i = 0; i < q; ++i) ARRIVE(i % 3);", range(3)),
    "fifth": ("for (unsigned i = 0; i < q; ++i) ARRIVE(i % 5);", range(5)),
    "sixth": ("for (unsigned i = q; i < n; i += 7) ARRIVE(i % 6 + 1);", range(1, 7)),
    "half": ("for (int i = 0; i < n; ++i) ARRIVE(i / 2 % 4);", range(4)),
    "signed_fourth": (
        "int g = 0; for (int i = 0; i < n; ++i) for (int j = 0; j < q; ++j, ++g) ARRIVE(g % 4);",
        range(4),
    ),
    "signed_third": (
        "int g = 0; for (int i = 0; i < n; ++i) for (int j = 0; j < q; ++j, ++g) ARRIVE(g % 3);",
        range(3),
    ),
    "wrapped": (
        "int stage = 0;\n#pragma unroll 1\n"
        "for (int i = 0; i < n; ++i) { ARRIVE(stage); if (++stage == 5) stage = 0; }",
        range(5),
    ),
    "wrapped_by_half": (
        "int stage = 0, phase = 0;\n#pragma unroll 1\nfor (int i = 0; i < n; ++i) {"
        " ARRIVE(stage + 8 * phase); stage = stage == 2 ? 0 : stage + 1; phase ^= stage == 0; }",
        [0, 1, 2, 8, 9, 10],
    ),
    "bounded": ("\n#pragma unroll 1\nfor (int i = 0; i < 9; ++i) { ARRIVE(i); p[i] = 0; }",
                range(9)),
    "downwards": ("\n#pragma unroll 1\nfor (int i = 9; i > 2; --i) { ARRIVE(i); p[i] = 0; }",
                  range(3, 10)),
    "warp": ("ARRIVE(t / 32);", range(32)),
    "first_warps": ("if (t < 128) ARRIVE(t / 32 + 2);", range(2, 6)),
    "of_lane": ("ARRIVE(__shfl_sync(~0u, t / 256, 3));", range(4)),
    "selected": ("ARRIVE(p[0] > n ? 3 : 7);", [3, 7]),
    "branches": (
        "int x = 0; if (p[0] > 3) { x = p[1] < 2 ? 4 : 1; p[2] = n; __syncthreads(); }"
        " else if (n > 2) { p[3] = 7; x = 9; } ARRIVE(x);",
        [0, 1, 4, 9],
    ),
    "switched": (
        "int x; switch (n) { case 0: x = 3; p[1] = 4; break; case 1: x = 5; __syncthreads(); break;"
        " case 2: x = 9; p[2] = 1; break; case 3: x = 1; p[4] = n; break;"
        " case 4: x = 12; p[5] = q; break; default: x = 2; p[7] = q; } ARRIVE(x);",
        [3, 5, 9, 1, 12, 2],
    ),
    "ballot": ("ARRIVE(__ballot_sync(~0u, p[t]) & 7);", range(8)),
    "active": ("if (p[t]) ARRIVE(__activemask() & 7);", range(8)),
    "agreed": (
        'int alike, any; asm volatile("{.reg .pred a, b, c; setp.ne.s32 a, %2, 0;"'
        ' "vote.sync.uni.pred b, a, -1; vote.sync.any.pred c, a, -1;"'
        ' "selp.s32 %0, 2, 0, b; selp.s32 %1, 1, 0, c;}" : "=r"(alike), "=r"(any) : "r"(p[t]));'
        " ARRIVE(alike + any);",
        [1, 2, 3],
    ),
    "voted": ("ARRIVE(__all_sync(~0u, p[t]) ? 3 : 1);", [1, 3]),
    "elected": ("if (t == 0) ARRIVE(11);", [11]),
    "called": ("ARRIVE(chosen(p[0])); p[1] = chosen(p[2]);", [0, 1, 6]),
    "at_most": ("if (q <= 5) ARRIVE(q);", range(6)),
    "least": ("ARRIVE(min(q, 5u));", range(6)),
    "remainder_of_parts": ("for (unsigned i = 0; i < q; ++i) ARRIVE(i / 3 % 2 * 3 + i % 3);",
                           range(6)),
}  # fmt: skip
#: those of which more than what they arrive at is found, for certain (the function that is called
#: is followed from each call to each; a vote on whether all are alike is not followed)
WIDER = {"called", "agreed"}
#: those whose counter ends a loop of sm_100a as the sum of itself and a parameter, which may be any
ADDED_TO = {"signed_third", "signed_fourth"}
#: those of which nothing is known
UNKNOWN = {"loaded": "ARRIVE(p[0]);", "far": "ARRIVE(q & 127);"}

#: where shared memory of a kernel begins
BASE = 0x400


def source() -> str:
    """All kernels in one text."""
    bodies = {**{name: body for name, (body, _) in KERNELS.items()}, **UNKNOWN}
    kernels = [f"KERNEL({name}) {{ BARRIERS; {body} }}" for name, body in bodies.items()]
    return HEAD + "\n".join(kernels)


def first_cta(name: str, pc: int) -> Collection[int] | None:
    """Of a cluster, or of a launch without."""
    return {0} if name == "SR_CgaCtaId" else None


def arrivals(function: Function, known: Known = first_cta) -> set[int] | None:
    """The mbarriers of all arrivals; None if one can be any."""
    sets = ValueSets(function, known)
    found: set[int] = set()
    for pc in function.reached([0]):
        operand = mbarrier_operand(function.code[pc])
        if operand is None:
            continue
        assert operand.does == "arrive"
        addresses = sets.address(pc)
        if addresses is None:
            return None
        found |= {(address - BASE) // 8 for address in addresses}
    return found


@pytest.fixture(scope="module", params=["sm_90a", "sm_100a"])
def functions(request: pytest.FixtureRequest) -> Mapping[str, Function]:
    return compiled.functions(compiled.image(source(), request.param, lines=False))


def test_each_mbarrier_that_is_arrived_at_is_found_and_no_other(
    functions: dict[str, Function],
) -> None:
    found = {name: arrivals(functions[name]) for name in KERNELS}
    right = {name: {*values} for name, (_, values) in KERNELS.items()}
    for name in ADDED_TO:
        if found[name] is None:
            del found[name], right[name]
    for name in WIDER:
        assert right[name] <= (found.pop(name) or set())
        del right[name]
    assert found == right


def test_what_nothing_bounds_is_not_known(functions: dict[str, Function]) -> None:
    assert {name: arrivals(functions[name]) for name in UNKNOWN} == dict.fromkeys(UNKNOWN)


def test_what_the_caller_knows_is_used(functions: dict[str, Function]) -> None:
    at = {"sm_90a": 0x210, "sm_100a": 0x380}
    arch = "sm_100a" if "c[0x0][0x37c]" in functions["number"].code[0].operands else "sm_90a"

    def known(name: str, pc: int) -> Collection[int] | None:
        words = {f"c[0x0][{at[arch] + 8:#x}]": {4}, f"c[0x0][{at[arch] + 12:#x}]": {13}}
        return words.get(name, first_cta(name, pc) if name != "SR_TID.X" else {70})

    assert arrivals(functions["masked_parameter"], known) == {5}
    assert arrivals(functions["mask"], known) == {0, 1, 2, 3}
    assert arrivals(functions["warp"], known) == {2}
    assert arrivals(functions["first_warps"], known) == {4}
    assert 12 in (arrivals(functions["switched"], known) or ())
    assert arrivals(functions["signed_third"], known) == {0, 1, 2}
    assert arrivals(functions["signed_fourth"], known) == {0, 1, 2, 3}


def test_what_takes_too_many_rounds_is_not_known(
    functions: dict[str, Function], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_sets, "_MOST_ROUNDS", 1)
    for name, (_, values) in KERNELS.items():
        found = arrivals(functions[name])
        assert found is None or {*values} <= found, name
