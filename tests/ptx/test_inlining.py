"""Names of a kernel, calls, and the layout of its shared memory."""

from __future__ import annotations

import pytest

from tilesim.ptx.inline import (
    At,
    Both,
    Items,
    Kernel,
    Not,
    Register,
    Special,
    Symbol,
    Target,
    flatten,
)
from tilesim.ptx.parser import read
from tilesim.ptx.syntax import PtxError, Sink

HEAD = ".version 9.4\n.target sm_90a\n.address_size 64\n"


def kernel(text: str, before: str = "") -> Kernel:
    module = read(f"{HEAD}{before}\n.entry k(.param .u64 a, .param .b8 m[128])\n{{\n{text}\n}}\n")
    return flatten(module, module.entries[0])


def test_names_mean_what_their_scope_says() -> None:
    found = kernel(
        ".reg .b32 r;\n.reg .pred p;\n"
        "{ .reg .pred p; L: elect.sync _|p, -1; @p bra L; }\n"
        "{ .reg .b64 r; L: mov.b64 r, a; @!p bra L; }\n"
        "mov.u32 r, %tid.x;\nld.param.u64 r, [a+0];\nst.shared.v2.b32 [s+8], {r, r};",
        ".extern .shared .align 128 .b8 s[];",
    )
    elect, back, move, again, special, load, store = found.code
    inner = Register("p#1", "pred")
    assert elect.operands[0] == Both(Sink(), inner)
    assert (back.guard, back.operands) == (inner, (Target(0),))
    assert move.operands[0] == Register("r#2", "b64")
    assert (again.guard, again.operands) == (Not(Register("p", "pred")), (Target(2),))
    assert special.operands == (Register("r", "b32"), Special("tid.x"))
    symbol = load.operands[1]
    assert isinstance(symbol, At)
    assert isinstance(symbol.base, Symbol)
    assert symbol.base.variable.space == "param"
    place, values = store.operands
    assert isinstance(place, At)
    assert isinstance(place.base, Symbol)
    assert place.base.offset == 8
    assert values == Items((Register("r", "b32"),) * 2)


def test_branch_targets_become_numbers() -> None:
    found = kernel(".reg .b32 r;\nbrx.idx r, t;\nt: .branchtargets A, B;\nA: ret;\nB: bra A;")
    assert found.code[0].operands[1] == Items((Target(1), Target(2)))
    assert found.code[2].operands == (Target(1),)


def test_calls_are_inlined_with_registers_of_their_own() -> None:
    before = (
        ".func (.param .b32 out) f(.param .b32 in)\n{\n.reg .b32 r;\n.reg .pred p;\n"
        "ld.param.b32 r, [in];\n@p ret;\nst.param.b32 [out], r;\nret;\n}\n"
    )
    found = kernel(
        ".reg .b32 r;\n.reg .pred p;\n{\n.param .b32 x;\n.param .b32 y;\nst.param.b32 [x], r;\n"
        "@!p call.uni (y), f, (x);\nld.param.b32 r, [y];\n}\nret;",
        before,
    )
    opcodes = [step.opcode for step in found.code]
    assert opcodes == [
        "st.param.b32", "bra.uni", "ld.param.b32", "bra", "st.param.b32", "bra", "ld.param.b32",
        "ret",
    ]  # fmt: skip
    skip, load, leave = found.code[1:4]
    assert (skip.guard, skip.operands) == (Register("p", "pred"), (Target(6),))
    assert load.operands[0] == Register("f.1:r", "b32")
    place = load.operands[1]
    assert isinstance(place, At)
    assert isinstance(place.base, Symbol)
    assert place.base.variable.name == "x#1"
    assert (leave.guard, leave.operands) == (Register("f.1:p", "pred"), (Target(6),))


def test_asserts_trap_and_prints_only_give_a_number() -> None:
    before = (
        ".extern .func __assertfail(.param .b64 a);\n.extern .func (.param .b32 r) vprintf"
        "(.param .b64 a);\n"
    )
    text = "{ .param .b64 x; .param .b32 y; call.uni __assertfail, (x); call (y), vprintf, (x); }"
    trap, prints = kernel(text, before).code
    assert (trap.opcode, prints.opcode) == ("trap", "call")
    assert [o.variable.name for o in prints.operands if isinstance(o, Symbol)] == ["y#1"]


def test_variables_in_shared_memory_have_offsets() -> None:
    found = kernel(
        ".shared .align 8 .b8 own[12];\nmov.u32 %r1, own;\n.reg .b32 %r<2>;\nmov.u32 %r1, dyn;",
        ".shared .b32 first;\n.extern .shared .align 128 .b8 dyn[];\n.shared .b64 second[2];",
    )
    assert found.shared == {"first": 0, "second": 8, "own": 24, "dyn": 128}
    assert found.shared_size == 128


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("mov.u32 %r1, 0;", "%r1 is not declared"),
        ("bra L;", "L is not declared"),
        ("{ L: ret; }\nbra L;", "L is not declared"),
        (".reg .b32 r;\n@r bra L;\nL: ret;", "r is not a predicate"),
        ("call g;", "g is called, but this module has no body"),
    ],
)
def test_errors_have_the_line(text: str, what: str) -> None:
    with pytest.raises(PtxError) as caught:
        kernel(text)
    assert what in str(caught.value)
    assert caught.value.line >= 7


def test_a_function_whose_address_is_taken() -> None:
    with pytest.raises(PtxError, match="address of the function f is taken") as caught:
        kernel(".reg .b64 %rd<2>;\nmov.u64 %rd1, f;", ".func f() { ret; }")
    assert caught.value.line >= 7


def test_recursion_is_refused() -> None:
    with pytest.raises(PtxError, match="too deeply"):
        kernel("call f;", ".func f() { call f; ret; }")
