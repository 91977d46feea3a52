"""``tilesim fuzz --dask``: a campaign on a Dask cluster of this machine, with workers that die."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tilesim
from tilesim.cli import main
from tilesim.fuzz import campaign
from tilesim.fuzz.cases import Case, Outcome, Settings
from tilesim.parallel import DIES, distributed

from .dask_worker import serve

dask: Any = pytest.importorskip("distributed", reason="needs the dask extra")

KERNELS = str(Path(__file__).with_name("kernels.py"))
ROOT = str(Path(tilesim.__file__).parents[1])
#: one is killed from outside, two die of a case, which is tried again, and one is left
WORKERS = 4


@contextmanager
def scheduler() -> Iterator[Any]:
    """A scheduler in this process, without workers."""
    with dask.LocalCluster(
        n_workers=0, host="127.0.0.1", dashboard_address=":0", silence_logs=50
    ) as local:
        yield local


@contextmanager
def workers(address: str) -> Iterator[list[Any]]:
    """Worker processes, none of which is started again when it dies; what they need is imported
    once, in the process that they are forked from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "distributed", "tilesim.fuzz.campaign"])
    started = [context.Process(target=serve, args=(address,), daemon=True) for _ in range(WORKERS)]
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", ROOT)
            for process in started:
                process.start()
        yield started
    finally:
        for process in started:
            process.kill()
            process.join()


def _give_up_at_once(dask_scheduler: Any) -> None:
    """Lets the scheduler give a task up when a worker died on it."""
    dask_scheduler.allowed_failures = 0


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_a_cluster_whose_workers_die() -> None:
    """It gives the report of one process; what kills workers costs only itself.

    All in one: to start workers takes longer than what they do here.
    """
    with scheduler() as cluster, workers(cluster.scheduler_address) as processes:
        address = cluster.scheduler_address
        with dask.Client(address) as client:
            client.wait_for_workers(WORKERS)
            _the_report_of_one_process(address)
            _a_killed_worker_loses_nothing(address, processes)
            client.run_on_scheduler(_give_up_at_once)
            _a_case_that_kills_costs_only_itself(address)
            assert _left(processes) == 1


def _left(processes: list[Any]) -> int:
    """How many go on; the connection of one that dies is gone before the process is."""
    alive = [process for process in processes if process.is_alive()]
    while len(alive) > 1 and wait([process.sentinel for process in alive], timeout=60):
        alive = [process for process in alive if process.is_alive()]
    return len(alive)


def _the_report_of_one_process(address: str) -> None:
    arguments = ("fuzz", f"{KERNELS}::ring", "--cases", "8", "--seed", "3", "--format", "json")
    alone = invoke(*arguments)
    spread = invoke(*arguments, "--dask", address)
    assert alone.exit_code == spread.exit_code == 1, spread.output
    assert spread.stdout == alone.stdout
    assert len(json.loads(spread.stdout)["cases"]) == 8


def _a_killed_worker_loses_nothing(address: str, processes: list[Any]) -> None:
    params = (("stages", 2), ("trips", 20), ("carried", True))
    cases = [Case(i, f"{KERNELS}::ring", params, Settings(), i) for i in range(40)]
    killed: list[int] = []

    def kill_one(outcome: Outcome) -> None:
        if outcome.case.number >= 3 and not killed:
            killed.append(outcome.case.number)
            processes[0].kill()

    done = campaign.run(cases, distributed(address), workers=WORKERS, on_outcome=kill_one)
    assert killed
    assert [o.case.number for o in done.sorted()] == list(range(40))
    assert {o.verdict for o in done.outcomes} == {"proved"}
    assert not done.interrupted


def _a_case_that_kills_costs_only_itself(address: str) -> None:
    params = (("trips", 2),), (("trips", 40),), (("trips", 6),), (("trips", 8),)
    cases = [Case(i, f"{KERNELS}::deadly", p, Settings(), i) for i, p in enumerate(params)]
    done = campaign.run(cases, distributed(address), workers=WORKERS)
    assert [o.verdict for o in done.sorted()] == ["proved", "error", "proved", "proved"]
    assert done.sorted()[1].message == DIES
    assert not done.stopped


def test_a_cluster_without_workers_ends_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilesim.parallel._PATIENCE_SECONDS", 1.0)
    with scheduler() as nobody:
        address = nobody.scheduler_address
        result = invoke("fuzz", f"{KERNELS}::ring", "--cases", "3", "--scheduler", address)
    assert result.exit_code == 3
    assert "stopped after 0 cases (seed 0): nothing was checked" in result.stdout
    assert "stopped: the cluster has had no worker for 1 seconds" in result.stderr
    assert "Traceback" not in result.stderr


def test_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilesim.parallel._CONNECT_SECONDS", 1.0)
    result = invoke("fuzz", f"{KERNELS}::ring", "--cases", "1", "--scheduler", "tcp://127.0.0.1:9")
    assert result.exit_code == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in result.stderr
