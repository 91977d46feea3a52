"""In what two machine codes of one PTX differ, and which differences are none."""

from __future__ import annotations

import pytest

from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.records import replace
from tilesim.translation import TranslationError
from tilesim.translation.two_compilers import Change, Compiled, changes
from tilesim.translation.validation import (
    Difference,
    Inserted,
    Translated,
    Undecided,
    Validation,
)

Row = tuple[str, str, tuple[str, ...]]
END: Row = ("", "EXIT", ())
TEXT = "mbarrier.arrive.shared::cta.b64 _, [%r1], %r2;"
ARRIVE = Translated("mbarrier.arrive", 7, TEXT, None, "kept", (0,))


def code(*rows: Row, instruction: Translated = ARRIVE, at: tuple[int, ...] = ()) -> Compiled:
    """Instructions in the order of places, of which those ``at`` are copies of ``instruction``; a
    branch goes to the last one."""
    made = {n * WIDTH: Instruction(n * WIDTH, *row) for n, row in enumerate(rows)}
    last = (len(rows) - 1) * WIDTH
    after = {
        pc: () if pc == last else (pc + WIDTH, last) if one.base == "BRA" else (pc + WIDTH,)
        for pc, one in made.items()
    }
    before = {pc: tuple(p for p, to in after.items() if pc in to) for pc in made}
    function = Function("k", 0, len(rows) * WIDTH, made, after, before)
    one = replace(instruction, pcs=tuple(n * WIDTH for n in at))
    return Compiled(function, Validation("k", "sm_90a", None, (one,), (), {}, (), ()))


def arrive(guard: str, opcode: str, register: str) -> Row:
    return guard, f"SYNCS.ARRIVE.TRANS64.{opcode}", ("RZ", "[UR4]", register)


def kinds(old: Compiled, new: Compiled) -> list[tuple[str, str, int]]:
    return [(one.aspect, one.kind, one.line) for one in changes(old, new)]


def test_registers_and_equal_forms_are_no_change() -> None:
    old = code(("", "MOV", ("R2", "0x1")), arrive("", "ART0", "R2"), END, at=(1,))
    new = code(arrive("", "A1T0", "RZ"), END, at=(0,))
    assert changes(old, new) == changes(new, old) == ()
    two = code(("", "MOV", ("R2", "0x2")), arrive("", "ART0", "R2"), END, at=(1,))
    assert changes(old, two) == (
        Change(
            "SASS", "mbarrier.arrive", 7, TEXT,
            ("SYNCS.ARRIVE.TRANS64.ART0 RZ, [UR4], R2 at 0x10",),
            ("SYNCS.ARRIVE.TRANS64.ART0 RZ, [UR4], R2 at 0x10",),
        ),
    )  # fmt: skip


def test_how_many_copies_there_are() -> None:
    one = code(arrive("", "A1T0", "RZ"), END, at=(0,))
    two = code(arrive("", "A1T0", "RZ"), arrive("", "A1T0", "RZ"), END, at=(0, 1))
    assert kinds(one, two) == [("SASS", "mbarrier.arrive", 7)]


def test_a_guard_may_stand_for_a_branch_and_not_for_nothing() -> None:
    branch = code(("P0", "BRA", ("0x20",)), arrive("", "A1T0", "RZ"), END, at=(1,))
    guard = code(arrive("!P0", "A1T0", "RZ"), END, at=(0,))
    always = code(arrive("", "A1T0", "RZ"), END, at=(0,))
    assert changes(branch, guard) == ()
    assert kinds(guard, always) == [("guard", "mbarrier.arrive", 7)]


def test_sequences_that_each_version_makes_in_its_own_way_are_not_compared() -> None:
    warp = Translated("bar.warp.sync", 9, "bar.warp.sync -1;", None, "kept")
    old = code(("", "WARPSYNC.COLLECTIVE", ("R1", "0x10")), END, instruction=warp, at=(0,))
    new = code(("P0", "WARPSYNC.ALL", ()), END, instruction=warp, at=(0,))
    assert changes(old, new) == ()


def test_what_becomes_of_an_instruction_and_what_is_added() -> None:
    row = arrive("", "A1T0", "RZ")
    old = code(row, ("", "DEPBAR.LE", ("SB0", "0x0")), END, at=(0,))
    plain, (one,) = old.validation, old.validation.instructions
    lost = replace(one, outcome="lost", pcs=(), why="no instruction is left")
    new = Compiled(old.function, replace(plain, instructions=(lost,)))
    assert [(c.aspect, c.old, c.new) for c in changes(old, new)] == [
        ("outcome", ("kept",), ("lost: no instruction is left",)),
        ("SASS", ("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ at 0x0",), ()),
    ]
    added = Inserted(0, "SYNCS", 7, "synchronises more than the PTX")
    scoreboard = Inserted(WIDTH, "DEPBAR.LE SB0, 0x0", 7, "waits for a scoreboard")
    more = Compiled(old.function, replace(plain, inserted=(added, scoreboard)))
    assert kinds(old, more) == [("inserted", "SYNCS.ARRIVE.TRANS64.A1T0", 7)]
    weaker = Difference("order", "order", "weaker", 7, TEXT, "One path has none.")
    harmless = replace(weaker, effect="harmless")
    found = Compiled(old.function, replace(plain, differences=(weaker, harmless)))
    assert changes(found, old) == (
        Change("difference", "order", 7, TEXT, ("weaker: One path has none.",), ()),
    )
    open_ = Undecided("order", 0, TEXT, "two copies")
    always = replace(open_, kind="bar.warp.sync", always=True)
    undecided = Compiled(old.function, replace(plain, undecided=(open_, always)))
    assert kinds(old, undecided) == [("undecided", "order", 0)]
    with pytest.raises(TranslationError, match="embed PTX that is not the same"):
        changes(old, Compiled(old.function, replace(plain, instructions=())))
