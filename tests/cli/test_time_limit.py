"""``--time-limit`` where no step looks at the clock: what reads PTX, and what is made of it before
its first instruction."""

from __future__ import annotations

import signal
from pathlib import Path
from time import sleep
from typing import Any

import pytest

import tilesim as ts
from tilesim.loader import Target
from tilesim.loader.ptx import PtxKernel

from . import kernels
from .conftest import Invoke, Write
from .test_ptx import files

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs alarms")


def endless(*arguments: Any, **options: Any) -> None:
    while True:
        pass


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_reading_ptx_is_limited(
    tmp_path: Path, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files(tmp_path, "")
    monkeypatch.setattr(Target, "form", endless)
    monkeypatch.setattr(PtxKernel, "module", endless)  # nor is it read to say its target
    result = tilesim_cli("check", path, "--time-limit", "0.1s")
    assert result.exit_code == 3
    assert result.output.splitlines()[:3] == [
        f"BOUNDED {path}::k",
        "  covers    no instruction; not a proof",
        "  because   its time limit of 0.1 s is used up before it was read",
    ]


def test_reading_and_checking_share_one_clock(
    tmp_path: Path, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = Target.form

    def slow(target: Target) -> Any:
        sleep(0.5)
        return form(target)

    monkeypatch.setattr(Target, "form", slow)
    monkeypatch.setattr("tilesim.limits._MOMENT", 9)
    result = tilesim_cli("check", files(tmp_path, ""), "--time-limit", "0.4s")
    assert result.exit_code == 3
    assert "because   its time limit of 0.4 s is used up\n" in result.output


def test_what_comes_before_the_first_instruction_is_limited(
    write: Write, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("good.py", kernels.GOOD)
    monkeypatch.setattr("tilesim.checker.Checking", endless)
    result = tilesim_cli("check", path, "--time-limit", "0.1s")
    assert result.exit_code == 3
    assert "because   its time limit of 0.1 s is used up\n" in result.output


def test_the_alarm_of_another_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rung = list[int]()
    signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 30)

        @ts.kernel(warps=1)
        def nothing(k: ts.Builder) -> None:
            k.sync_threads()

        assert ts.check(nothing, time_limit=20.0).verdict == "proved"
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 30
        assert signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_an_interrupt_of_the_user_stays_one(
    tmp_path: Path, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(target: Target) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Target, "form", interrupted)
    assert tilesim_cli("check", files(tmp_path, ""), "--time-limit", "60s").exit_code == 130
