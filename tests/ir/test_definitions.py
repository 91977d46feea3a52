"""One definition is enough: an instruction that exists in this module only, everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from docs.generate import page
from tilesim import Builder, Program, check, s32, u32
from tilesim.dsl import stub
from tilesim.dsl.methods import base
from tilesim.dsl.to_python import builder_code
from tilesim.export import to_promela
from tilesim.gpu.emit import emit
from tilesim.ir.effects import Defines, Effect, Gathers, Orders
from tilesim.ir.expr import Const, Expr, Var
from tilesim.ir.mir import Mir
from tilesim.ir.op import OPS, Inputs, Op
from tilesim.ir.program import instructions
from tilesim.ir.spelling import opcode
from tilesim.ir.text import parse, to_text
from tilesim.mistakes.table import mutants
from tilesim.ptx.launch import Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import PtxError
from tilesim.records import dataclass
from tilesim.sim.machine.simulate import simulate


@pytest.fixture
def rotate() -> Iterator[type[Op]]:
    """``rotate.sync``: a made-up exchange between neighbours that is a fence as well."""

    @dataclass(frozen=True, kw_only=True)
    class RotateSync(Op):
        """``rotate.sync``: the ``value`` of the lane ``by`` places to the right, negated or not."""

        mnemonic = "rotate.sync"
        sync = True
        call = "spin.rotate(result, value, by, *, negate, mask)"
        ptx = "rotate.sync{.negate}.{sem}.b32 {result}, {value:r}, {by}, {mask};"
        cycles = 20
        data = frozenset({"value"})
        fault = "memory fence dropped"
        sem = "acq_rel"

        result: Var
        value: Expr
        by: int = 1
        negate: bool = False
        mask: Expr = Const(0xFFFFFFFF)

        def verify(self) -> Iterator[str]:
            if not 0 < self.by < 32:
                yield f"by {self.by} is outside of 1..31"

        def effects(self) -> tuple[Effect, ...]:
            fence = Orders(self.mnemonic, acquires=True, releases=True, scope="gpu")
            return (Gathers(self.mask, "E12"), fence, Defines(self.result, divergent=True))

        def evaluate(self, inputs: Inputs) -> tuple[np.ndarray, ...]:
            turned = np.roll(inputs.lanes(self.value), -self.by)
            return (-turned if self.negate else turned,)

    yield RotateSync
    del OPS["rotate.sync"]
    if "rotate" in vars(base("spin")):
        delattr(base("spin"), "rotate")


def _program(*, mask: int = 0xFFFFFFFF, lanes: int = 32) -> Program:
    k: Any = Builder("turning", warps=1)
    out, x = k.tensor("out", s32, (32,)), k.var("x", 0)
    with k.if_(k.lane_id < lanes) if lanes < 32 else nullcontext():
        k.spin.rotate(x, 10 * k.lane_id, 2, negate=True, mask=mask)
    k.mem.store(out[k.lane_id], x)
    program: Program = k.finish()
    return program


def test_it_is_recorded_with_its_line_and_documented(rotate: type[Op]) -> None:
    k: Any = Builder("call", warps=1)
    assert k.spin.rotate.__doc__ == rotate.__doc__
    with pytest.raises(TypeError, match=r"spin\.rotate.*missing 1 required .* 'value'"):
        k.spin.rotate(k.var("x"))
    with pytest.raises(AttributeError, match=r"k\.spin has no instruction 'twist'"):
        k.spin.twist()
    (op,) = (o for o in instructions(_program()) if isinstance(o, rotate))
    assert op.loc.file.endswith("test_definitions.py")
    row = "| `k.spin.rotate(result, value, by=1, *, negate=False, mask=0xFFFFFFFF)` | "
    assert row + "`rotate.sync[.negate].{sem}` | The `value`" in page()


def test_it_is_printed_and_parsed(rotate: type[Op]) -> None:
    text = to_text(_program())
    assert "rotate.sync x, 10 * %lane_id, by=2, negate=true" in text
    assert parse(text) == _program()
    code = builder_code(_program())
    assert "k.spin.rotate(x, (10 * k.lane_id), by=2, negate=True)" in code


def test_it_is_emitted_as_it_is_spelled(rotate: type[Op]) -> None:
    (op,) = (o for o in instructions(_program()) if isinstance(o, rotate))
    assert opcode(op) == "rotate.sync.negate.acq_rel.b32"
    expected = 'rotate.sync.negate.acq_rel.b32 %0, %1, 2, %2;" : "=r"(x) : '
    assert expected + '"r"((u32)(10 * lane_id)), "r"(4294967295u)' in emit(_program()).text


def _read(spelled: str, *, lanes: int = 32) -> Mir:
    """A kernel in PTX that stores what ``spelled`` leaves in %r3."""
    text = (
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry turning(.param .u64 out)\n"
        "{\n.reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<9>;\nld.param.u64 %rd1, [out];\n"
        "mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, 10; mul.wide.u32 %rd2, %r1, 4;\n"
        f"add.s64 %rd3, %rd1, %rd2; mov.u32 %r3, 0; setp.lt.u32 %p1, %r1, {lanes};\n"
        f"@%p1 {spelled}\nst.global.u32 [%rd3], %r3;\nret; }}\n"
    )
    module = read(text, "k.ptx")
    launch = Launch("turning", (1, 1, 1), (32, 1, 1), params=(Pointer("out", 128),))
    return lower(module, module.entries[0], launch)


def test_it_is_read_from_ptx_as_it_is_emitted(rotate: Any) -> None:
    found = re.search(r'"(rotate\.sync.*?;)"', emit(_program()).text)
    assert found is not None
    spelled = found[1].replace("%0", "%r3").replace("%1", "%r2").replace("%2", "-1")
    mir = _read(spelled)
    (op,) = (i.what for i in mir.code if isinstance(i.what, rotate))
    x, value = Var("r3", u32), Var("r2", u32)
    assert op == rotate(result=x, value=value, by=2, negate=True, mask=Const(0xFFFFFFFF))
    assert (op.loc.file, op.loc.line) == ("k.ptx", 10)
    assert check(mir).verdict == "proved"
    plain = "rotate.sync.acq_rel.b32 %r3, %r2, 2, -1;"
    (op,) = (i.what for i in _read(plain).code if isinstance(i.what, rotate))
    assert op == rotate(result=x, value=value, by=2, mask=Const(0xFFFFFFFF))
    (finding,) = check(_read(spelled, lanes=7)).findings
    assert finding.rule == "participation"
    assert [p.loc.line for p in finding.participants] == [10]


@pytest.mark.parametrize("spelled", [
    "rotate.sync.negate.relaxed.b32 %r3, %r2, 2, -1;", "rotate.sync.acq_rel.b32 %r3, %r2, 2;",
    "rotate.sync.acq_rel.b32.frob %r3, %r2, 2, -1;", "rotate.sync.acq_rel.b32 %r3, %r2, %r1, -1;",
])  # fmt: skip
def test_another_spelling_of_it_is_refused_with_its_line(rotate: type[Op], spelled: str) -> None:
    with pytest.raises(PtxError) as caught:
        _read(spelled)
    assert caught.value.line == 10


def test_it_runs_and_is_proved(rotate: type[Op]) -> None:
    program = _program()
    out = simulate(program).outputs["out"]
    np.testing.assert_array_equal(out, -10 * ((np.arange(32) + 2) % 32))
    assert check(program).verdict == "proved"


def test_it_is_found_where_lanes_are_missing(rotate: type[Op]) -> None:
    (finding,) = check(_program(lanes=7)).findings
    assert finding.rule == "participation"
    assert "rotate.sync with mask 0xffffffff waits for lanes 0xffffff80" in finding.message
    assert check(_program(lanes=7, mask=127)).verdict == "proved"


def test_it_is_rejected_where_its_operands_are_wrong(rotate: type[Op]) -> None:
    k: Any = Builder("wrong", warps=1)
    k.spin.rotate(k.var("x"), 1, 32)
    with pytest.raises(Exception, match=r"rotate\.sync: by 32 is outside of 1\.\.31"):
        check(k.finish())


def test_it_is_exported_and_mutated(rotate: type[Op]) -> None:
    assert "proctype" in to_promela(_program())
    (mutant,) = mutants(_program(), ["memory fence dropped"])
    assert mutant.what == "rotate.sync removed"


def test_what_no_method_can_take_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"no method of the DSL takes a dict"):
        stub.given(dict[str, int])


def test_the_stub_is_up_to_date() -> None:
    assert stub.PAGE.read_text() == stub.stub(), "run python -m tilesim.dsl.stub"


def test_generated_methods_do_not_load_numpy() -> None:
    code = "import sys, tilesim; tilesim.Builder('k').fence.memory(); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_a_builder_says_what_it_does_not_have() -> None:
    k: Any = Builder("call")
    with pytest.raises(AttributeError, match="Builder has no 'wrap'"):
        k.wrap()
