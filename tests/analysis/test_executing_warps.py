"""Which warps may execute an instruction: never fewer than do, and no more where branches tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import tilesim as ts
from tests.ptx.test_check import program as ptx
from tilesim import Builder, Program, any_of, simulate
from tilesim.analysis.executing_warps import executing
from tilesim.arith.integers import COMPARE
from tilesim.arith.types import WIDTH, DType
from tilesim.ir.expr import Binary, BinaryOp, Const, Expr, Special, Unary, UnaryOp, Var, as_expr
from tilesim.ir.ops.scalar import Store
from tilesim.ptx.launch import Pointer, Scalar
from tilesim.transforms.lower import lower

WARPS = 6
LANES = 32
ALL = tuple(range(WARPS))
Warps = tuple[int, ...]
Cond = Callable[[Builder], Expr]


def stores(program: Program) -> Iterator[Warps]:
    """The warps that may execute each store, in the order of the code."""
    mir = lower(program)
    for number, warps in enumerate(executing(mir)):
        if isinstance(mir.code[number].what, Store):
            yield warps


def behind(cond: Cond) -> tuple[Warps, Warps]:
    """The warps that may execute what stands where a condition holds, and where it does not."""
    k = Builder("ways", warps=WARPS)
    out = k.tensor("out", ts.s32, (2, WARPS * LANES))
    with k.if_(cond(k)):
        k.mem.store(out[0, k.thread_id], 1)
    with k.else_():
        k.mem.store(out[1, k.thread_id], 1)
    there, elsewhere = stores(k.finish())
    return there, elsewhere


def uniform(k: Builder) -> Expr:
    """The number of the warp as compilers' code takes it from lane 0."""
    shuffled = k.var("shuffled")
    k.mem.shuffle(shuffled, k.var("warp", k.thread_id >> 5), 0)
    return shuffled


def reassigned(k: Builder) -> Expr:
    """A register that holds the warp's number first, and then 0."""
    warp = k.var("warp", k.warp_id)
    with k.if_(k.cta_x.ne(0)):
        k.assign(warp, 0)
    return warp


@pytest.mark.parametrize(
    ("cond", "there", "elsewhere"),
    [
        (lambda k: k.warp_id.eq(2), (2,), (0, 1, 3, 4, 5)),
        (lambda k: (k.thread_id >> 5) < 4, (0, 1, 2, 3), (4, 5)),
        (lambda k: k.thread_id < 100, (0, 1, 2, 3), (3, 4, 5)),
        (lambda k: k.thread_id.eq(64), (2,), ALL),
        (lambda k: uniform(k).eq(3), (3,), (0, 1, 2, 4, 5)),
        (lambda k: ((uniform(k) ^ 0x80000000) - 0x80000000) < 1, (0,), (1, 2, 3, 4, 5)),
        (lambda k: any_of((w := uniform(k)).eq(0), w > 4), (0, 5), (1, 2, 3, 4)),
        # what nobody comes to was meant for whoever comes to the branch
        (lambda k: k.lane_id.eq(40), ALL, ALL),
        (lambda k: as_expr(False), ALL, ALL),
        # nothing but the launch, or what is not known before it, decides these
        (lambda k: k.cta_x.eq(1), ALL, ALL),
        (lambda k: k.elect(), ALL, ALL),
        (lambda k: reassigned(k).eq(3), ALL, ALL),
        # not what they would be as numbers: a sum that wraps, a comparison without a sign
        (lambda k: (k.warp_id + 0x7FFFFFFF) < 1, ALL, ALL),
        (lambda k: (k.warp_id - 3) < k.var("one", 1, dtype=ts.u64), ALL, ALL),
    ],
)  # fmt: skip
def test_branches_over_the_numbers_of_threads_tell_who_comes(
    cond: Cond, there: Warps, elsewhere: Warps
) -> None:
    assert behind(cond) == (there, elsewhere)


def arms(compare: str, value: int, kind: str, *, warps: int = 2) -> tuple[Warps, Warps]:
    """The warps that may come behind a branch that PTX takes on a scalar, and elsewhere."""
    wide = WIDTH[kind]
    held = max(wide, 16)
    letter = {16: "h", 32: "r", 64: "rd"}[held]
    mir = ptx(
        ".reg .b16 %h<9>; ld.param.u64 %rd9, [c]; mov.u32 %r2, %tid.x;"
        f"ld.param.{kind} %{letter}1, [n]; cvt.u{held}.u32 %{letter}3, %r2;"
        f"\n{compare.format(s=f'%{letter}1', t=f'%{letter}3')}\n"
        "@%p1 bra L; st.global.u32 [%rd9], 1; bra M;\nL: st.global.u32 [%rd9+4], 1;\nM:",
        warps=warps, params=(".param .u64 c", f".param .{kind} n"),
        values=(Pointer("c", 64), Scalar("n", kind, value)),
    )  # fmt: skip
    elsewhere, there = (w for n, w in enumerate(executing(mir))
                        if isinstance(mir.code[n].what, Store))  # fmt: skip
    return there, elsewhere


@pytest.mark.parametrize(
    ("compare", "value", "kind", "there", "elsewhere"),
    [
        # one number for all threads, of 64 bits with and without a sign, against another one
        ("setp.ge.u64 %p1, {s}, 1;", 2, "u64", (0, 1), (0, 1)),
        ("setp.ge.u64 %p1, {s}, 1;", (1 << 63) + 5, "u64", (0, 1), (0, 1)),
        ("setp.lt.s64 %p1, {s}, 0;", (1 << 63) + 5, "u64", (0, 1), (0, 1)),
        ("setp.eq.s64 %p1|%p2, {s}, 0;", -1, "s64", (0, 1), (0, 1)),
        # against the thread's number
        ("setp.gt.u64 %p1, {s}, {t};", 32, "u64", (0,), (1,)),
        ("setp.gt.s32 %p1, {s}, {t};", 32, "s32", (0,), (1,)),
        ("setp.gt.u16 %p1, {s}, {t};", 32, "u16", (0,), (1,)),
        ("setp.gt.s16 %p1, {s}, {t};", 32, "u8", (0,), (1,)),
    ],
)  # fmt: skip
def test_a_branch_of_ptx_on_a_number_of_all_threads(
    compare: str, value: int, kind: str, there: Warps, elsewhere: Warps
) -> None:
    """Such a comparison of 64 bits, which threads and warps share, was an internal error."""
    assert arms(compare, value, kind) == (there, elsewhere)


@settings(max_examples=50)
@given(
    st.sampled_from(["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]),
    st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]),
    st.sampled_from("us"),
    st.data(),
)
def test_a_branch_of_ptx_sends_no_warp_where_it_is_not_expected(
    kind: str, relation: str, sign: str, data: st.DataObject
) -> None:
    """By the definition: of all threads, the scalar as the load extends it, the comparison's
    signs."""
    bits = WIDTH[kind]
    low = -(1 << bits - 1) if kind[0] == "s" else 0
    high = (1 << bits - 1) - 1 if kind[0] == "s" else (1 << bits) - 1
    edges = [n for n in (0, 1, 31, 32, 40, 63, 64, low, high, 1 << bits - 1) if low <= n <= high]
    value = data.draw(st.sampled_from(edges) | st.integers(low, high))
    held = max(bits, 16)
    other = data.draw(st.sampled_from(["{t}", "1", "40", "{s}"]))
    there, elsewhere = arms(
        f"setp.{relation}.{sign}{held} %p1, {{s}}, {other};", value, kind, warps=2
    )

    def read(number: int) -> int:
        number &= (1 << held) - 1
        return number - (1 << held) if sign == "s" and number >> held - 1 else number

    def takes(thread: int) -> bool:
        right = {"{t}": thread, "{s}": value}.get(other)
        return COMPARE[relation](read(value), read(int(other) if right is None else right))

    assert {t // LANES for t in range(2 * LANES) if takes(t)} <= {*there}
    assert {t // LANES for t in range(2 * LANES) if not takes(t)} <= {*elsewhere}


def test_who_has_ended_does_not_come() -> None:
    k = Builder("ends", warps=WARPS)
    out = k.tensor("out", ts.s32, (2, WARPS * LANES))
    with k.if_(k.thread_id >= 100):
        k.exit()
    k.mem.store(out[0, k.thread_id], 1)
    with k.if_(k.thread_id < 64):
        k.exit()
    k.mem.store(out[1, k.thread_id], 1)
    assert [*stores(k.finish())] == [(0, 1, 2, 3), (2, 3)]


def test_what_nobody_comes_to_was_meant_for_who_comes_to_the_branch() -> None:
    k = Builder("never", warps=WARPS)
    out = k.tensor("out", ts.s32, (3, WARPS * LANES))
    with k.role("worker", [1, 2]):
        with k.if_(k.thread_id >= 96):
            k.mem.store(out[0, k.thread_id], 1)
            with k.if_(k.warp_id.eq(2)):
                k.mem.store(out[1, k.thread_id], 1)
        with k.if_(k.warp_id.eq(1)):
            k.mem.store(out[2, k.thread_id], 1)
    assert [*stores(k.finish())] == [(1, 2), (2,), (1,)]


def test_what_stands_behind_an_end_was_meant_for_who_ends_there() -> None:
    k = Builder("ended", warps=WARPS)
    out = k.tensor("out", ts.s32, (2, WARPS * LANES))
    with k.role("worker", [1, 2]):
        k.exit()
        k.mem.store(out[0, k.thread_id], 1)
    with k.role("other", 3):
        with k.if_(k.warp_id < 5):
            k.exit()
        k.mem.store(out[1, k.thread_id], 1)
    assert [*stores(k.finish())] == [(1, 2), (3,)]


def test_a_loop_without_an_end_is_followed_once() -> None:
    k = Builder("endless", warps=WARPS)
    out = k.tensor("out", ts.s32, (1, WARPS * LANES))
    with k.role("worker", [1, 2]), k.while_(as_expr(True)):
        k.mem.store(out[0, k.thread_id], 1)
    assert [*stores(k.finish())] == [(1, 2)]


def test_in_a_loop_a_role_is_who_came_to_it() -> None:
    k = Builder("loop", warps=WARPS)
    out = k.tensor("out", ts.s32, (2, WARPS * LANES))
    with k.role("worker", [1, 2]), k.loop(3) as turn:
        with k.if_((k.warp_id + turn).eq(3)):
            k.mem.store(out[0, k.thread_id], 1)
        with k.if_(k.warp_id.eq(1)):
            k.mem.store(out[1, k.thread_id], 1)
    assert [*stores(k.finish())] == [(1, 2), (1,)]


# ------------------------------------------------------------------ against what is executed

_NUMBERS = st.integers(-70, 70) | st.sampled_from([31, 32, 96, 2**31 - 1, -(2**31), 2**32 - 1])
_OPERATORS = st.sampled_from(
    ["+", "-", "*", "&", "|", "^", "<<", ">>", "min", "max", "==", "!=", "<", "<=", ">", ">="]
)
_REGISTERS = st.sampled_from([ts.s32, ts.u32, ts.s64, ts.u64, ts.pred])


#: an expression over the registers that there are
Over = Callable[[list[Var]], Expr]
THREADS = [Special("thread_id"), Special("warp_id"), Special("lane_id")]


def _leaf(number: int) -> Over:
    return lambda registers: [*THREADS, *registers][number % (len(THREADS) + len(registers))]


def _binary(op: BinaryOp, lhs: Over, rhs: Over) -> Over:
    return lambda registers: Binary(op, lhs(registers), rhs(registers))


def _unary(op: UnaryOp, operand: Over) -> Over:
    return lambda registers: Unary(op, operand(registers))


#: one strategy for all: a recursive one takes longer to make than a program to run
EXPRESSIONS: st.SearchStrategy[Over] = st.recursive(
    st.integers(0, 59).map(_leaf) | _NUMBERS.map(lambda number: lambda registers: Const(number)),
    lambda inner: (
        st.builds(_binary, _OPERATORS, inner, inner)
        | st.builds(_unary, st.sampled_from(["-", "~", "not"]), inner)
    ),
    max_leaves=5,
)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Registers that are made of the numbers of threads, and stores behind branches over them."""
    k = Builder("threads", warps=WARPS)
    out = k.tensor("out", ts.s32, (4, WARPS * LANES))
    registers: list[Var] = []
    for number in range(draw(st.integers(0, 3))):
        dtype: DType = draw(_REGISTERS)
        value = draw(EXPRESSIONS)(registers)
        if dtype is not ts.pred and draw(st.booleans()):
            source, value_of = k.var(f"s{number}", dtype=dtype), value
            k.assign(source, value_of)
            shuffled = k.var(f"r{number}", dtype=dtype)
            k.mem.shuffle(shuffled, source, draw(st.integers(0, 31)))
            registers += [source, shuffled]
        else:
            registers.append(k.var(f"r{number}", value, dtype=dtype))
    for number in range(4):
        with k.if_(draw(EXPRESSIONS)(registers), sync=False):
            k.mem.store(out[number, k.thread_id], 1)
    return k.finish()


@settings(max_examples=100)
@given(programs())
def test_whoever_executes_an_instruction_was_expected(program: Program) -> None:
    run = simulate(program)
    assert not run.findings
    stored = run.outputs["out"].reshape(4, WARPS, LANES).max(axis=2)
    for number, warps in enumerate(stores(program)):
        assert {w for w in range(WARPS) if stored[number, w]} <= {*warps}
