"""MIR: what programs lower to, its text form, its fingerprint."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.ir.strategies import instructions, program
from tilesim import Builder, check, ds, u8, u32
from tilesim.analysis.executing_warps import executing
from tilesim.errors import InvalidProgram, ParseError
from tilesim.ir.mir import Branch, Mir
from tilesim.ir.op import OPS, Op
from tilesim.ir.program import Program
from tilesim.ir.text.forms import name, operands
from tilesim.ir.text.mir import AddressValues, MirPrinter, fingerprint, parse, to_text
from tilesim.ir.verify import verify
from tilesim.kernels.registry import cases
from tilesim.transforms.lower import lower


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
    inside = [n for n, i in enumerate(mir.code) if i.role == "producer"]
    assert {executing(mir)[n] for n in inside} == {(0,)}
    assert {type(mir.code[n].what).__name__ for n in inside} >= {"MbarrierWait", "MbarrierArrive"}


def assert_reads_back(mir: Mir, *, locations: bool) -> None:
    """The text form makes the same program, and the same text of that."""
    text = to_text(mir, locations=locations)
    again = parse(text, "again.mir")
    assert again == mir or "nan" in text  # which is not equal to itself
    assert (again.roles, again.local, again.typing) == (mir.roles, mir.local, mir.typing)
    assert to_text(again, locations=locations) == text
    assert fingerprint(again) == fingerprint(mir)


class OtherNames(AddressValues):
    """Calls everything that is declared otherwise, in another alphabetical order."""

    def called(self, declared: str) -> str:
        return name(declared[::-1] + ".other")


class NoLabels(AddressValues):
    """Leaves out what findings call things."""

    labels = False


def renamed(mir: Mir) -> Mir:
    """The same program with other names for everything, at other lines."""
    code = (replace(i, role=f"the {i.role}") for i in mir.code)
    roles = tuple(f"the {role}" for role in mir.roles)
    kernel = replace(mir.kernel, name="another")
    other = replace(mir, kernel=kernel, code=tuple(code), roles=roles)
    return parse(MirPrinter(other, False, OtherNames).text())


@pytest.mark.parametrize("family", ["hopper", "cluster", "nvfuser", "blackwell", "bugs"])
def test_the_gallery_reads_back_and_goes_by_what_it_executes(family: str) -> None:
    for n, case in enumerate(cases(family)):
        mir = lower(case.build())
        assert pickle.loads(pickle.dumps(mir)) == mir
        if n % 3:
            assert parse(to_text(mir)) == mir
            continue
        assert_reads_back(mir, locations=True)
        other = renamed(mir)
        assert other != mir
        assert fingerprint(other) == fingerprint(mir)


@pytest.mark.parametrize("mnemonic", sorted(OPS))
def test_every_instruction_reads_back(mnemonic: str) -> None:
    @settings(max_examples=4, deadline=None)
    @given(instructions(OPS[mnemonic]), instructions(OPS[mnemonic]), st.data())
    def round_trip(op: Op, other: Op, data: st.DataObject) -> None:
        mir = lower(program(op))
        for locations in (False, True):
            assert_reads_back(mir, locations=locations)
        if not operands(type(op)):
            return
        field = data.draw(st.sampled_from([o.name for o in operands(type(op))]))
        changed = replace(op, **{field: getattr(other, field)})
        again = lower(program(changed))
        same = executed(again) == executed(mir)
        assert (fingerprint(again) == fingerprint(mir)) == same

    round_trip()


def executed(mir: Mir) -> str:
    """The text without what findings call things."""
    return MirPrinter(mir, False, NoLabels).text()


def test_it_can_be_pickled_and_hashed() -> None:
    mir = lower(looping())
    assert pickle.loads(pickle.dumps(mir)) == mir
    assert hash(mir) == hash(lower(looping()))


def test_the_fingerprint_tells_programs_apart_and_ignores_lines() -> None:
    program = looping()
    moved = replace(program, loc=replace(program.loc, line=7))
    assert fingerprint(lower(moved)) == fingerprint(lower(program))
    assert fingerprint(lower(replace(program, warps=3))) != fingerprint(lower(program))


def shared(first: int, second: int, *, offset: int | None = None) -> Mir:
    """Two tensors and barriers in shared memory; the last of a tensor's rows is written."""
    k = Builder("shared", warps=1)
    a = k.shared("a", u32, (4, 8), pitch=48)
    k.shared("unused", u8, (first,))
    b = k.shared("b", u32, (2, 4, second), offset=offset)
    bars = k.mbarriers("bars", 4)
    with k.loop(4) as i, k.one_thread():
        k.mem.store(a[3, 5], 1)
        k.mem.store(b[i % 2, ds(i, 1), 2], 2)
        k.mbarrier.init(bars[i], 1)
        k.mbarrier.init(bars[2], 1)
    return lower(k.finish())


def test_operands_are_at_byte_addresses() -> None:
    text = to_text(shared(1, 8))
    assert "shared a: u32, {4, 8}, pitch=48  # 0x0..0xc0" in text
    assert "st a[0x0 + 0x30 * (3) + 0x4 * (5)], 1" in text
    assert "st b[0x180 + 0x80 * (i % 2) + 0x20 * (i:+1) + 0x4 * (2)], 2" in text
    assert "mbarrier.init bars[0x280 + 0x8 * (i)], 1" in text
    assert "mbarrier.init bars[0x290], 1" in text


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("b[0x180 +", "b[0x80 +", "expected 0x180, where b is, found '0x80'"),
        ("+ 0x20 * (i", "+ 0x40 * (i", "expected 0x20, by which neighbours in b differ"),
        (" + 0x4 * (2)", "", "expected '+' before the next dimension of b"),
        ("0x290]", "0x28f]", "expected an address in bars, 32 bytes from 0x280, found '0x28f'"),
        ("0x290]", "0x2a0]", "expected an address in bars, 32 bytes from 0x280, found '0x2a0'"),
        ("bars[0x280 +", "bars[0x288 +", "expected an address in bars"),
        ("0x8 * (i)", "0x8 * (i:+1)", "expected an address in bars"),
    ],
)
def test_addresses_have_to_be_in_what_they_name(right: str, wrong: str, message: str) -> None:
    text = to_text(shared(1, 8))
    assert text.count(right) == 1
    with pytest.raises(ParseError, match=r"^<text>:\d+:\d+: ") as error:
        parse(text.replace(right, wrong))
    assert message in str(error.value)


def test_what_lies_elsewhere_is_another_program() -> None:
    """The size of a tensor that nothing touches moves nothing here, or what comes behind it."""
    own = fingerprint(shared(1, 8))
    assert fingerprint(shared(1, 8)) == own
    others = {fingerprint(m) for m in (shared(200, 8), shared(1, 12), shared(1, 8, offset=0x1800))}
    assert len(others) == 3
    assert own not in others


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
    text = f"mir 2\nkernel x: target=sm_90a, warps=2\ncode {{\n{wrong}\n}}\n"
    with pytest.raises(ParseError, match=r"^<text>:\d+:\d+: ") as error:
        parse(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("said", "found"),
    [("1", "found not 0"), ("64", "found not 0"), ("0, 64", "found 64"),
     ("0..1, 4294967296", "found 4294967296")],
)  # fmt: skip
def test_the_warps_that_come_to_an_instruction_are_named(said: str, found: str) -> None:
    text = to_text(lower(looping()))
    right = 'in role "producer" warps 0\n'
    assert text.count(right) == 1
    wrong = text.replace(right, f'in role "producer" warps {said}\n')
    first = next(n for n, _ in enumerate(lower(looping()).code) if f"{right}    {n}: " in text)
    with pytest.raises(ParseError, match=r"^<text>:\d+:\d+: ") as error:
        parse(wrong)
    assert f"expected warps 0, which reach instruction {first}, {found}" in str(error.value)


def test_warps_that_do_not_come_to_an_instruction_may_be_named() -> None:
    text = to_text(lower(looping()))
    assert parse(text.replace('"producer" warps 0\n', '"producer" warps 0..1\n')) == parse(text)


def joining(branch: str = "branch 2, cond=%lane_id < 3", join: str = "join syncs=true") -> Mir:
    """Some lanes of two warps store, and all meet behind."""
    return parse(
        "mir 2\nkernel x: target=sm_90a, warps=2\nglobal g: u32, {64}\ncode {\n"
        'roles "a", "b"\n'
        f"0: {branch}, sense=false\n1: st g[0x4 * (%thread_id)], 1\n2: {join}\n3: barrier.sync 0\n"
        "}\n"
    )


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        # lanes of a warp jump past the join at which the others wait for them
        ({}, {"branch": "branch 3, cond=%lane_id < 3"},
         "instruction 2 is a join at which all lanes of a warp reconverge, and instruction 0 may "
         "send"),
        # a warp jumps past it, with all its lanes
        ({"branch": "branch 3, cond=%warp_id < 1"}, {"branch": "branch 3, cond=%thread_id < 1"},
         "instruction 2 is a join at which all lanes of a warp reconverge, and instruction 0 may "
         "send"),
        ({"branch": "branch 3, cond=%lane_id < 3", "join": "join"},
         {"join": "if (%lane_id < 3) join"}, "instruction 2, a join, has a guard"),
        ({}, {"branch": "if (%lane_id < 3) branch 2, cond=%lane_id < 4"},
         "instruction 0, a branch, has a guard"),
    ],
)  # fmt: skip
def test_lanes_meet_where_all_of_their_warp_come(
    right: dict[str, str], wrong: dict[str, str], message: str
) -> None:
    verify(joining(**right))
    with pytest.raises(InvalidProgram) as error:
        verify(joining(**wrong))
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
