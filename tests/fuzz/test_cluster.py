"""``tilesim fuzz --dask``: a campaign on a stand-in for a cluster whose workers die."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from tilesim.cli import main
from tilesim.fuzz import campaign
from tilesim.fuzz.cases import Case, Settings
from tilesim.parallel import DIES, Cluster

T = TypeVar("T")
R = TypeVar("R")

RING = f"{Path(__file__).with_name('kernels.py')}::ring"
CASES = [Case(i, RING, (("trips", 1),), Settings(), i) for i in range(6)]


@dataclass
class StandIn:
    """A cluster that ends one case each time it is asked how many workers it has.

    ``killers`` die in every worker; ``beside`` are lost as well if they are sent together with
    others, as those that the same worker holds. After ``last`` ends no worker is left for ``gone``
    questions, which is for ever by default. Its clock moves by 10 ms with each question.
    """

    killers: frozenset[int] = frozenset()
    beside: frozenset[int] = frozenset()
    last: int = 1_000
    gone: int = 1_000_000
    sent: list[tuple[Future[Any], Callable[[], object], int]] = field(default_factory=list)
    alone: dict[int, bool] = field(default_factory=dict)
    asked: int = 0

    def now(self) -> float:
        """What time it is, in seconds."""
        return self.asked / 100

    def submit(self, function: Callable[[T], R], task: T, /) -> Future[R]:
        """Keeps the case for later."""
        assert isinstance(task, bytes)
        case = pickle.loads(task)
        assert isinstance(case, Case)
        future: Future[R] = Future()
        self.sent.append((future, lambda: function(task), case.number))
        self.alone = {number: len(self.sent) == 1 for _, _, number in self.sent}
        return future

    def workers(self) -> int:
        """Ends the next case, or says that nobody is there."""
        self.asked += 1
        if self.last == 0 and self.gone > 0:
            self.gone -= 1
            return 0
        if self.last > 0:
            self.last -= 1
        future, work, number = self.sent.pop(0)
        if number in self.killers or (number in self.beside and not self.alone[number]):
            future.set_exception(RuntimeError("KilledWorker"))
        else:
            future.set_result(work())
        return 1


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits a minute."""
    monkeypatch.setattr("tilesim.parallel._POLL_SECONDS", 0.001)
    monkeypatch.setattr("tilesim.parallel._PATIENCE_SECONDS", 0.25)


def run(cluster: StandIn) -> campaign.Campaign:
    """A campaign of `CASES`, by the clock of the cluster."""
    assert isinstance(cluster, Cluster)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilesim.parallel.monotonic", cluster.now)
        return campaign.run(CASES, lambda: nullcontext(cluster), workers=64)


def messages(done: campaign.Campaign) -> dict[int, str]:
    """What was said about each case that proved or did not."""
    return {o.case.number: o.message or o.verdict for o in done.sorted()}


def test_without_workers_the_campaign_ends_with_what_it_has() -> None:
    done = run(StandIn(last=4))
    assert done.stopped == "the cluster has had no worker for 0.25 seconds"
    assert messages(done) == dict.fromkeys(range(4), "proved")
    assert not done.interrupted


def test_a_cluster_that_never_had_a_worker() -> None:
    cluster = StandIn(last=0)
    assert "no worker" in run(cluster).stopped
    assert len(cluster.sent) == 6
    assert all(future.cancelled() for future, _, _ in cluster.sent)


def test_a_worker_that_comes_in_time_goes_on() -> None:
    done = run(StandIn(last=4, gone=20))
    assert not done.stopped
    assert messages(done) == dict.fromkeys(range(6), "proved")


def test_only_the_case_that_kills_is_to_blame() -> None:
    done = run(StandIn(killers=frozenset({1}), beside=frozenset({2, 4})))
    assert not done.stopped
    assert messages(done) == {**dict.fromkeys(range(6), "proved"), 1: DIES}


def test_the_case_that_kills_the_last_worker_when_alone_is_reported() -> None:
    done = run(StandIn(killers=frozenset({1}), last=6))
    assert "no worker" in done.stopped
    assert messages(done) == {**dict.fromkeys(range(6), "proved"), 1: DIES}


def test_a_lost_scheduler_ends_the_campaign() -> None:
    class Abandoned(StandIn):
        def workers(self) -> int:
            """Ends a case, and forgets the others."""
            known = super().workers()
            for future, _, _ in self.sent:
                future.cancel()
                future.set_running_or_notify_cancel()
            return known

    done = run(Abandoned())
    assert done.stopped == "the cluster has cancelled its work: the scheduler is gone"
    assert messages(done) == {0: "proved"}


# ------------------------------------------------------------------ the command


def invoke(monkeypatch: pytest.MonkeyPatch, cluster: StandIn, *arguments: str) -> Result:
    """``tilesim fuzz`` on the stand-in."""
    monkeypatch.setattr("tilesim.cli.campaign.opener", lambda *_: lambda: nullcontext(cluster))
    monkeypatch.setattr("tilesim.parallel.monotonic", cluster.now)
    command = ("fuzz", RING, "--cases", "12", "--dask", "tcp://stand-in:1", *arguments)
    return CliRunner().invoke(main, command)


def test_command_says_why_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke(monkeypatch, StandIn(last=4), "--param", "carried=1")
    assert result.exit_code == 3, result.output
    assert f"{RING}: stopped after 4 cases (seed 0): 4 proved" in result.stdout
    assert "stopped: the cluster has had no worker for 0.25 seconds" in result.stderr
    assert "--jobs 2 instead of --dask says which" in result.stderr


def test_what_was_found_before_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke(monkeypatch, StandIn(last=8), "--param", "carried=0", "--param", "trips=3")
    assert result.exit_code == 1, result.output
    assert "FAILED" in result.stdout


def test_json_says_why_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke(monkeypatch, StandIn(last=4), "--format", "json")
    document = json.loads(result.stdout)
    assert document["stopped"] == {
        "done": 4, "reason": "the cluster has had no worker for 0.25 seconds",
    }  # fmt: skip
    assert len(document["cases"]) == 4
    assert "interrupted" not in document
