"""Processes that work on tasks: those that die, and tasks that raise."""

from __future__ import annotations

import os

import pytest

from tilesim.parallel import processes, work

LOST = -1


class Picky(Exception):
    """It cannot be unpickled: that takes one argument, and it has two."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


def halved(task: int) -> int:
    """A result, or for some tasks something else."""
    match task:
        case 13:
            raise LookupError("13 has no half")
        case 17:
            raise Picky("17", "has no half")
        case 19:
            raise MemoryError
        case 23:
            os._exit(1)
        case _:
            return task // 2


def done(*tasks: int) -> list[int]:
    """What two processes make of tasks."""
    results: list[int] = []
    assert work(
        halved,
        tasks,
        processes(2),
        workers=2,
        lost=lambda _task, _reason: LOST,
        on_result=results.append,
    )
    return sorted(results)


def test_a_task_of_which_a_process_dies_is_lost_and_no_other() -> None:
    assert done(2, 4, 23, 6) == [LOST, 1, 2, 3]


def test_a_task_without_memory_is_lost() -> None:
    assert done(2, 19) == [LOST, 1]


def test_what_a_task_raises_is_raised() -> None:
    with pytest.raises(LookupError, match="13 has no half") as caught:
        done(2, 13, 4)
    assert "in halved" in str(caught.value.__cause__), "where, in the process"


def test_what_cannot_be_unpickled_is_told() -> None:
    with pytest.raises(RuntimeError, match="Picky: 17: has no half") as caught:
        done(2, 17, 4)
    assert "in halved" in str(caught.value)
