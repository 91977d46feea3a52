"""MIR: what programs lower to, its text form, its fingerprint."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings

from tests.ir.strategies import instructions, program
from tilesim import Builder, check
from tilesim.errors import ParseError
from tilesim.ir.lower import lower
from tilesim.ir.mir import Branch, Mir
from tilesim.ir.op import OPS, Op
from tilesim.ir.program import Program
from tilesim.ir.text.mir import fingerprint, parse, to_text
from tilesim.kernels.registry import cases


def looping() -> Program:
    """A loop in a role, with a branch inside."""
    k = Builder("looping", warps=2)
    bar = k.mbarriers("bar", 2)
    with k.one_thread():
        k.mbarrier.init(bar[0], 1)
        k.mbarrier.init(bar[1], 1)
    k.sync_threads()
    with k.role("producer", 0), k.loop(4) as i:
        k.mbarrier.wait(bar[i % 2], (i // 2) & 1)
        with k.if_(k.lane_id < 3):
            k.mbarrier.arrive(bar[1 - i % 2])
    return k.finish()


def test_instructions_are_numbered_and_jumps_lead_to_them() -> None:
    mir = lower(looping())
    for number, instruction in enumerate(mir.code):
        match instruction.what:
            case Op():
                assert instruction.what.number == number
            case Branch(target=target):
                assert 0 <= target <= len(mir.code)
            case _:
                pass


def test_a_loop_is_registers_and_a_branch() -> None:
    text = to_text(lower(looping()))
    assert "counts mov i, 0" in text
    assert "cond=i < 4, sense=false" in text
    assert "counts mov i, i + 1" in text


def test_regions_annotate_their_instructions() -> None:
    mir = lower(looping())
    inside = [i for i in mir.code if i.role == "producer"]
    assert {i.warps for i in inside} == {(0,)}
    assert {type(i.what).__name__ for i in inside} >= {"MbarrierWait", "MbarrierArrive"}


def assert_round_trip(mir: Mir) -> None:
    """The text form reads back, with locations and without."""
    for locations in (False, True):
        text = to_text(mir, locations=locations)
        again = parse(text, "again.mir")
        assert again == mir or "nan" in text  # which is not equal to itself
        assert (again.roles, again.local, again.typing) == (mir.roles, mir.local, mir.typing)
        assert to_text(again, locations=locations) == text
        assert fingerprint(again) == fingerprint(mir)


@pytest.mark.parametrize("family", ["hopper", "cluster", "nvfuser", "blackwell"])
def test_the_text_form_of_the_gallery_reads_back(family: str) -> None:
    for case in cases(family)[::3]:
        assert_round_trip(lower(case.build()))


def has_effects(op: Op) -> bool:
    """Whether operands have as many dimensions as the instruction takes: drawn ones may not."""
    try:
        op.effects()
    except (IndexError, ValueError):
        return False
    return True


@pytest.mark.parametrize("mnemonic", sorted(OPS))
def test_every_instruction_reads_back(mnemonic: str) -> None:
    @settings(max_examples=4, deadline=None)
    @given(instructions(OPS[mnemonic]))
    def round_trip(op: Op) -> None:
        assume(has_effects(op))
        assert_round_trip(lower(program(op)))

    round_trip()


def test_it_can_be_pickled_and_hashed() -> None:
    mir = lower(looping())
    assert pickle.loads(pickle.dumps(mir)) == mir
    assert hash(mir) == hash(lower(looping()))


def test_the_fingerprint_tells_programs_apart_and_ignores_lines() -> None:
    program = looping()
    moved = replace(program, loc=replace(program.loc, line=7))
    assert fingerprint(lower(moved)) == fingerprint(lower(program))
    assert fingerprint(lower(replace(program, warps=3))) != fingerprint(lower(program))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("0: join", "expected 'roles'"),
        ("roles \"a\", \"b\"\n1: join", "expected instruction 0, found '1'"),
        ("roles \"a\", \"b\"\n0: branch 7", "expected a jump to 0..1, found one to 7"),
        ("roles \"a\"\n0: join", "1 roles for 2 warps"),
        ("roles \"a\", \"b\"\n0: jump 0", "expected an instruction, found 'jump'"),
    ],
)  # fmt: skip
def test_errors_say_where(wrong: str, message: str) -> None:
    text = f"mir 1\nkernel x: target=sm_90a, warps=2\ncode {{\n{wrong}\n}}\n"
    with pytest.raises(ParseError, match=r"^<text>:\d+:\d+: ") as error:
        parse(text)
    assert message in str(error.value)


def stuck() -> Program:
    """A warp that waits for a phase of which an arrival is missing."""
    k = Builder("stuck", warps=2)
    bar = k.mbarriers("bar", 1)
    with k.one_thread():
        k.mbarrier.init(bar[0], 2)
    k.sync_threads()
    with k.role("consumer", 1):
        k.mbarrier.wait(bar[0], 0)
    with k.role("producer", 0), k.elected():
        k.mbarrier.arrive(bar[0])
    return k.finish()


@pytest.mark.parametrize("make", [looping, stuck])
def test_a_check_needs_no_more_than_the_mir(make: Callable[[], Program]) -> None:
    assert check(lower(make())) == check(make())
