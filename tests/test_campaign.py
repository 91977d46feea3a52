"""The driver of campaigns: what is wrong ends a command with 1, and what is right with 0."""

from __future__ import annotations

import time

import click
import pytest
from click.testing import CliRunner

from tests.campaign import Judge, Judged, command, each, tally


def sevens(number: int, bad: str) -> Judged:
    """Judges a number: multiples of seven are as ``bad`` says."""
    if number % 7 or bad == "nothing":
        return Judged("right", amounts={"sum": number})
    if bad == "error":
        raise ValueError(number)
    return Judged("odd", note="look") if bad == "note" else Judged("odd", "a seven")


@command
@click.option("--bad", default="nothing")
def judged(bad: str) -> Judge:
    """Numbers."""
    return lambda number: sevens(number, bad)


def outcome(*arguments: str) -> tuple[int, str]:
    """How the command ends, and what it prints."""
    result = CliRunner().invoke(judged, arguments)
    return result.exit_code, result.output


def test_what_is_wrong_is_printed_and_ends_with_1() -> None:
    code, printed = outcome("--cases", "7", "--seed", "3", "--bad", "wrong")
    assert code == 1
    assert "WRONG: 7: odd: a seven" in printed
    assert "1 odd (the first: 7)" in printed
    assert "7 programs; wrong: 7" in printed


def test_the_same_without_is_right() -> None:
    code, printed = outcome("--cases", "7", "--seed", "3")
    assert code == 0
    assert "7 programs; wrong: none" in printed
    assert "42 sum" in printed


def test_one_beside_it_is_right() -> None:
    assert outcome("--cases", "3", "--seed", "8", "--bad", "wrong")[0] == 0
    assert outcome("--cases", "1", "--seed", "14", "--bad", "wrong")[0] == 1


def test_an_error_is_wrong_and_does_not_end_the_others() -> None:
    code, printed = outcome("--cases", "14", "--bad", "error")
    assert code == 1
    assert "ValueError: 7" in printed
    assert "14 programs; wrong: 7, 14" in printed


def test_what_is_to_be_looked_at_is_not_wrong() -> None:
    code, printed = outcome("--cases", "7", "--bad", "note")
    assert code == 0
    assert "7: look" in printed


def test_so_many_programs_as_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def numbers(seconds: float) -> int:
        clock = iter(range(10_000))
        monkeypatch.setattr(time, "monotonic", lambda: next(clock))
        return len(list(each(always, range(100), seconds=seconds)))

    assert numbers(8) == 7
    assert numbers(1e9) == 100


def always(number: int) -> Judged:
    """Says the number's last digit, and that nines are wrong."""
    return Judged(str(number % 10), "nine" if number % 10 == 9 else "")


def test_processes_say_what_one_says() -> None:
    every = range(100, 150)
    alone = tally(always, every)
    assert dict(each(always, every, jobs=2)) == dict(each(always, every))
    assert sorted(alone.wrong) == [109, 119, 129, 139, 149]
    assert alone.first["3"] == 103
    assert alone.count("3") == 5
