"""Emitted arithmetic on the host: what the simulator computes, and nothing that C leaves undefined.

A C++ compiler that checks for undefined behaviour stands in for the device. Device functions that
the emitted expressions call are written out below.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilesim import Builder, Program, f32, s32, s64, select, u8, u32, u64
from tilesim.arith.types import DType, numpy_dtype
from tilesim.gpu.emit.emitter import emitted_typing
from tilesim.gpu.emit.expr import Expressions
from tilesim.gpu.emit.prelude import HELPERS, TYPES
from tilesim.ir.arithmetic import CType, Typing, integer_limits
from tilesim.ir.expr import Binary, BinaryOp, Const, Expr, Unary, Var
from tilesim.ir.ops.scalar import Store
from tilesim.ir.program import instructions
from tilesim.sim.machine.simulate import simulate

COMPILER = shutil.which("g++")
REGISTERS: dict[str, DType] = {
    "a": s32, "b": s32, "c": u32, "d": u32, "e": s64, "f": s64, "g": u8, "x": f32, "y": f32,
}  # fmt: skip
RESULTS: dict[CType, DType] = {"s32": s32, "u32": u32, "s64": s64, "u64": u64, "f32": f32}
_INCLUDES = "\n".join(f"#include <{name}>" for name in ("cmath", "cstdio", "cstring", "limits"))
_SHIMS = """
using std::floor; using std::fmod; using std::copysign;
#define DEVICE inline
template <class T> T saturated(double x) {
  typedef std::numeric_limits<T> L;
  if (x != x) return 0;
  return x <= (double)L::min() ? L::min() : x >= (double)L::max() ? L::max() : (T)x;
}
f32 __fadd_rn(f32 a, f32 b) { return a + b; }
f32 __fsub_rn(f32 a, f32 b) { return a - b; }
f32 __fmul_rn(f32 a, f32 b) { return a * b; }
s32 __float2int_rz(f32 x) { return saturated<s32>(x); }
u32 __float2uint_rz(f32 x) { return saturated<u32>(x); }
s64 __float2ll_rz(f32 x) { return saturated<s64>(x); }
u64 __float2ull_rz(f32 x) { return saturated<u64>(x); }
template <class T> void put(T x) {
  u64 bytes = 0;
  memcpy(&bytes, &x, sizeof x);
  fwrite(&bytes, 8, 1, stdout);
}
"""


SMALL = (0, 1, 3, 7, -1, -2, 64, 2**31 - 1, -(2**31), 2**32 - 1)
OPERATORS: tuple[BinaryOp, ...] = (
    "+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "<", "min", "max",
)  # fmt: skip
ROUNDED: tuple[BinaryOp, ...] = ("+", "-", "*", "//", "%")


def integer(rng: random.Random, depth: int) -> Expr:
    """A random integer expression over `REGISTERS`."""
    if depth == 0 or rng.random() < 0.1:
        name = rng.choice([n for n, t in REGISTERS.items() if t.kind != "float"])
        return Const(rng.choice(SMALL)) if rng.random() < 0.3 else Var(name, REGISTERS[name])
    a, b = integer(rng, depth - 1), integer(rng, depth - 1)
    choice = rng.random()
    if choice < 0.1:
        return Unary("-", a)
    if choice < 0.2:
        return select(Var("a") < rng.randint(-3, 3), a, b)
    op = rng.choice(OPERATORS)
    if op in ("//", "%"):
        b = Const(rng.choice((1, 3, 8, -1, -5))) if rng.random() < 0.6 else b | 1
    if op in ("<<", ">>"):
        b = Const(rng.choice((0, 5, 31, 40))) if rng.random() < 0.5 else Var("g", u8)
    return Binary(op, a, b)


def real(rng: random.Random, depth: int) -> Expr:
    """A random floating-point expression over `REGISTERS`."""
    if depth == 0:
        number = Const(rng.choice((0.1, 3.25, -1.5)))
        return number if rng.random() < 0.3 else Var(rng.choice(("x", "y")), f32)
    a = real(rng, depth - 1)
    b = real(rng, depth - 1) if rng.random() < 0.8 else integer(rng, 1)
    op = rng.choice(ROUNDED)
    return Binary(op, a, Const(2.75) if op in ("//", "%") else b)


def build(expressions: list[Expr], typing: Typing) -> Program:
    """A kernel that stores what every expression is in every lane."""
    k = Builder("arithmetic", "sm_90a", 1)
    for name, dtype in REGISTERS.items():
        k.mem.load(k.var(name, dtype=dtype), k.tensor(f"in_{name}", dtype, (32,))[k.lane_id])
    for number, expression in enumerate(expressions):
        dtype = RESULTS[typing.type_of(expression)]
        k.mem.store(k.tensor(f"out_{number}", dtype, (32,))[k.lane_id], expression)
    return k.finish()


def inputs() -> dict[str, np.ndarray]:
    """What the registers hold: the ends of their types, and numbers in between."""
    rng = np.random.default_rng(0)
    values = {}
    for name, dtype in REGISTERS.items():
        kind = numpy_dtype(dtype)
        if dtype.kind == "float":
            values[f"in_{name}"] = rng.normal(0, 1000, 32).astype(kind)
            continue
        low, high = integer_limits(dtype)
        ends = [low, high, low + 1, high - 1, 0, 1, 5]
        drawn = rng.integers(low, high, 32 - len(ends), dtype=kind, endpoint=True)
        values[f"in_{name}"] = np.concatenate([np.array(ends, dtype=kind), drawn])
    return values


def on_the_host(program: Program, folder: Path) -> np.ndarray:
    """What the emitted expressions are, as (expression, lane, 8 bytes)."""
    typing = emitted_typing(program)
    names = Expressions({name: name for name in REGISTERS}, typing)
    stores = [op for op in instructions(program) if isinstance(op, Store)]
    lines = []
    for op in stores:
        kind = typing.type_of(op.value)
        lines.append(f"{{ {kind} value = {names.cast(op.value, kind)}; put(value); }}")
    arguments = ", ".join(f"{typing.type_of(Var(n, t))} {n}" for n, t in REGISTERS.items())
    arrays = []
    for name, dtype in REGISTERS.items():
        numbers = (f"{float(v)!r}f" if dtype.kind == "float" else _literal(int(v))
                   for v in inputs()[f"in_{name}"])  # fmt: skip
        kind = typing.type_of(Var(name, dtype))
        arrays.append(f"const {kind} in_{name}[] = {{{', '.join(numbers)}}};")
    used = dict.fromkeys(n for name in sorted(names.helpers) for n in (*HELPERS[name].needs, name))
    helpers = "\n".join(HELPERS[name].text.split("// one instruction")[0] for name in used)
    calls = ", ".join(f"in_{name}[lane]" for name in REGISTERS)
    text = "\n".join(
        (_INCLUDES, TYPES.replace("#define", "//"), _SHIMS, helpers, *arrays,
         f"void lanes({arguments}) {{", *lines, "}",
         f"int main() {{ for (int lane = 0; lane < 32; ++lane) lanes({calls}); }}")
    )  # fmt: skip
    source, binary = folder / "arithmetic.cpp", folder / "arithmetic"
    source.write_text(text)
    assert COMPILER is not None
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-fsanitize=undefined", "-w",
             "-fno-sanitize-recover=all", "-static-libubsan"]  # fmt: skip
    subprocess.run([COMPILER, *flags, str(source), "-o", str(binary)], check=True)
    done = subprocess.run([str(binary)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return np.ascontiguousarray(np.frombuffer(done.stdout, np.uint64).reshape(32, len(stores)).T)


def _literal(value: int) -> str:
    return "(-9223372036854775807LL - 1)" if value == -(2**63) else f"{value}LL"


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")
@pytest.mark.parametrize("seed", range(4))
def test_expressions_are_what_the_simulator_computes(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    expressions = [integer(rng, 3) for _ in range(120)] + [real(rng, 2) for _ in range(40)]
    program = build(expressions, Typing())
    want = simulate(program, inputs()).outputs
    got = on_the_host(program, tmp_path)
    for number, expression in enumerate(expressions):
        expected = want[f"out_{number}"]
        actual = got[number].view(np.uint8).reshape(32, 8)[:, : expected.itemsize]
        same = np.ascontiguousarray(expected).view(np.uint8).reshape(32, -1) == actual
        lanes = np.flatnonzero(~same.all(axis=1))
        assert not len(lanes), f"{expression}: lane {lanes[0]}, {expected[lanes[0]]}"
