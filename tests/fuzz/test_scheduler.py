"""``tilesim fuzz --scheduler``: a campaign on a Dask cluster, with workers that die."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tilesim
from tilesim.cli import main
from tilesim.fuzz import campaign
from tilesim.fuzz.cases import Case, Outcome, Settings
from tilesim.parallel import distributed

dask = pytest.importorskip("distributed", reason="needs the dask extra")

KERNELS = str(Path(__file__).with_name("kernels.py"))
ROOT = str(Path(tilesim.__file__).parents[1])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes on this machine, that a nanny starts again when they die."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", ROOT)
        patch.chdir(ROOT)
        local = dask.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None,
            silence_logs=50,
        )  # fmt: skip
        with local:
            yield local


def _tolerate(failures: int, dask_scheduler: Any) -> None:
    """Lets the scheduler give a task up after so many workers died on it."""
    dask_scheduler.allowed_failures = failures


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_a_cluster_gives_the_report_of_one_process(cluster: Any) -> None:
    arguments = ("fuzz", f"{KERNELS}::ring", "--cases", "12", "--seed", "3", "--format", "json")
    alone = invoke(*arguments)
    spread = invoke(*arguments, "--scheduler", cluster.scheduler_address)
    assert alone.exit_code == spread.exit_code == 1, spread.output
    assert spread.stdout == alone.stdout
    assert len(json.loads(spread.stdout)["cases"]) == 12


def test_a_killed_worker_loses_nothing(cluster: Any) -> None:
    params = (("stages", 2), ("trips", 40), ("carried", True))
    cases = [Case(i, f"{KERNELS}::ring", params, Settings(), i) for i in range(60)]
    killed: list[int] = []

    def kill_one(outcome: Outcome) -> None:
        if outcome.case.number >= 3 and not killed:
            killed.append(next(iter(cluster.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    done = campaign.run(
        cases, distributed(cluster.scheduler_address), workers=2, on_outcome=kill_one
    )
    assert killed
    assert [o.case.number for o in done.sorted()] == list(range(60))
    assert {o.verdict for o in done.outcomes} == {"proved"}
    assert not done.interrupted


def test_a_case_that_kills_every_worker_costs_only_itself(cluster: Any) -> None:
    params = (("trips", 2),), (("trips", 40),), (("trips", 6),), (("trips", 8),)
    cases = [Case(i, f"{KERNELS}::deadly", p, Settings(), i) for i, p in enumerate(params)]
    with dask.Client(cluster.scheduler_address) as client:
        client.run_on_scheduler(_tolerate, 1)
        done = campaign.run(cases, distributed(cluster.scheduler_address), workers=2)
    assert [o.verdict for o in done.sorted()] == ["proved", "error", "proved", "proved"]
    assert done.sorted()[1].message == "the worker process dies on this case"
    assert not done.stopped


def test_a_cluster_without_workers_ends_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilesim.parallel._PATIENCE_SECONDS", 1.0)
    with dask.LocalCluster(
        n_workers=0, host="127.0.0.1", dashboard_address=None, silence_logs=50
    ) as nobody:
        address = nobody.scheduler_address
        result = invoke("fuzz", f"{KERNELS}::ring", "--cases", "3", "--scheduler", address)
    assert result.exit_code == 3
    assert "stopped after 0 cases (seed 0): nothing was checked" in result.stdout
    assert "stopped: the cluster has had no worker for 1 seconds" in result.stderr
    assert "Traceback" not in result.stderr


def test_nothing_answers() -> None:
    result = invoke("fuzz", f"{KERNELS}::ring", "--cases", "1", "--scheduler", "tcp://127.0.0.1:9")
    assert result.exit_code == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in result.stderr
