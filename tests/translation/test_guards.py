"""What guards depend on."""

from __future__ import annotations

from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.ptx.inline import flatten
from tilesim.ptx.parser import read
from tilesim.translation.conditions import Condition
from tilesim.translation.guards import ptx_conditions, sass_conditions


def function(*rows: tuple[str, str, tuple[str, ...]]) -> Function:
    """Instructions one after the other: guard, opcode, operands."""
    code = {
        n * WIDTH: Instruction(n * WIDTH, guard, opcode, operands)
        for n, (guard, opcode, operands) in enumerate(rows)
    }
    after = {pc: (pc + WIDTH,) if pc + WIDTH in code else () for pc in code}
    before = {pc: (pc - WIDTH,) if pc else () for pc in code}
    return Function("k", 0, len(code) * WIDTH, code, after, before)


def test_a_guard_of_ptx_is_its_register_and_what_sets_it() -> None:
    text = """
    .version 8.0
    .target sm_90a
    .address_size 64
    .visible .entry k() {
        .reg .pred %p<3>;
        .reg .b32 %r<3>;
        mov.u32 %r1, %tid.x;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 bar.sync 1;
        @!%p1 bra L;
        setp.eq.u32 %p1, %r1, 1;
    L:  ret;
    }
    """
    module = read(text, "k.ptx")
    found = ptx_conditions(flatten(module, module.entries[0]))
    made = frozenset({1, 4})
    assert found == {2: Condition("%p1", True, made), 3: Condition("%p1", False, made)}


def test_a_guard_of_sass_is_its_predicate_and_what_writes_it() -> None:
    found = sass_conditions(
        function(
            ("", "ISETP.NE.AND", ("P0", "PT", "R0", "RZ", "PT")),
            ("P0", "BAR.SYNC.DEFER_BLOCKING", ("0x1",)),
            ("", "BRA.U", ("!UP0", "0x40")),
            ("P0", "BRA.U.ANY", ("0x0",)),
            ("!P0", "EXIT", ()),
            ("P0", "EXIT", ("P1",)),
        )
    )
    made = frozenset({0})
    assert found == {
        WIDTH: Condition("P0", True, made),
        2 * WIDTH: Condition("UP0", False, frozenset()),
        4 * WIDTH: Condition("P0", False, made),
    }
