"""The judgement of `tests.litmus.silicon`, without a GPU."""

from __future__ import annotations

from collections import Counter

from click.testing import CliRunner

from tests.gpu.needs import no_driver
from tests.litmus.silicon import Allowed, Seen, allowed, inputs, main, rows, unsaid
from tests.litmus.table import Row
from tilesim import Program


def program(id: str) -> tuple[Row, Program]:
    """A row and what it makes."""
    return next(found for found in rows(id) if found[0].id == id)


def outcomes(id: str) -> Allowed:
    row, made = program(id)
    return allowed(made, inputs(row, made))


def test_a_proved_row_has_one_outcome() -> None:
    found = outcomes("LH03")
    assert (found.stuck, found.undefined, len(found.outputs)) == (False, "", 1)
    (result,) = found.outputs
    assert Seen(Counter({result: 5})).within(found)
    assert not Seen(Counter({result: 5, b"other": 1})).within(found)
    assert not Seen(Counter({result: 5}), hangs=1).within(found)
    assert not Seen(Counter({result: 5}), errors=Counter(trap=1)).within(found)


def test_a_deadlock_may_hang_and_must_not_end() -> None:
    found = outcomes("LA05")
    assert (found.stuck, found.undefined, found.outputs) == (True, "", frozenset())
    assert Seen(hangs=2).within(found)
    assert not Seen(Counter({b"": 1})).within(found)


def test_what_is_undefined_may_do_anything() -> None:
    found = outcomes("LH02")
    assert found.undefined == "race"
    assert Seen(Counter({b"anything": 1}), hangs=1, errors=Counter(trap=1)).within(found)


def test_fewer_bytes_than_a_copy_has_may_be_seen_in_passing() -> None:
    assert outcomes("LB14-inside").undefined == "tx-mismatch"


def test_the_bytes_of_a_map_and_the_time_are_not_foretold() -> None:
    assert unsaid(program("LB17-right")[1]) == {"maps"}
    assert unsaid(program("LV04")[1]) == {"out"}
    assert not unsaid(program("LH03")[1])


@no_driver
def test_without_a_driver_it_says_so() -> None:
    result = CliRunner().invoke(main)
    assert result.exit_code == 1
    assert "there is no NVIDIA driver here" in result.output
