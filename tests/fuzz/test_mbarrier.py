"""Stateful fuzzing of one mbarrier against A.3 written down once more."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tilesim import Builder, u32
from tilesim.ir.expr import Var
from tilesim.sim.machine.simulate import simulate

COUNTS = st.integers(1, 4)
BYTES = st.sampled_from((16, 32, 48))


class OneBarrier(RuleBasedStateMachine):
    """One thread does things to a barrier and asks it; the model predicts answers and the end."""

    @initialize(count=COUNTS)
    def start(self, count: int) -> None:
        """mbarrier.init."""
        self.k = Builder("one", "sm_90a", 1)
        self.out = self.k.tensor("out", u32, (64,))
        self.barrier = self.k.mbarriers("b")
        self.answer: Var = self.k.var("answer", dtype=u32)
        self.token: Var = self.k.var("token", dtype=u32)
        self.opening = self.k.one_thread()
        self.opening.__enter__()
        self.k.mbarrier.init(self.barrier, count)
        self.phase, self.pending, self.expected, self.tx = 0, count, count, 0
        self.answers: list[int] = []
        self.broken = ""

    def credit(self, arrivals: int, tx: int, drop: int = 0) -> None:
        """A.3: expect, arrive, and the end of the phase."""
        self.expected -= drop
        if arrivals > self.pending:
            self.broken = "over-arrival"
            return
        self.pending -= arrivals
        self.tx += tx
        if self.pending == 0 and self.tx == 0:
            self.phase, self.pending = self.phase + 1, self.expected

    @precondition(lambda self: not self.broken)
    @rule(count=COUNTS)
    def arrive(self, count: int) -> None:
        """mbarrier.arrive."""
        self.k.mbarrier.arrive(self.barrier, count)
        self.credit(count, 0)

    @precondition(lambda self: not self.broken)
    @rule(size=BYTES)
    def arrive_expect_tx(self, size: int) -> None:
        """mbarrier.arrive.expect_tx."""
        self.k.mbarrier.arrive_expect_tx(self.barrier, size)
        self.credit(1, size)

    @precondition(lambda self: not self.broken)
    @rule(size=BYTES)
    def expect_tx(self, size: int) -> None:
        """mbarrier.expect_tx: must not end a phase (U3)."""
        self.k.mbarrier.expect_tx(self.barrier, size)
        before = self.phase
        self.credit(0, size)
        if self.phase != before:
            self.broken = "tx-mismatch"

    @precondition(lambda self: not self.broken)
    @rule(size=BYTES)
    def complete_tx(self, size: int) -> None:
        """mbarrier.complete_tx."""
        self.k.mbarrier.complete_tx(self.barrier, size)
        self.credit(0, -size)

    @precondition(lambda self: not self.broken and self.expected > 1)
    @rule()
    def arrive_drop(self) -> None:
        """mbarrier.arrive_drop: later phases expect one less (A16)."""
        self.k.mbarrier.arrive_drop(self.barrier)
        self.credit(1, 0, drop=1)

    @precondition(lambda self: not self.broken and self.pending > 1 and len(self.answers) < 60)
    @rule()
    def no_complete(self) -> None:
        """mbarrier.arrive.noComplete and mbarrier.pending_count: P before the arrival."""
        self.k.mbarrier.arrive(self.barrier, token=self.token, no_complete=True)
        self.k.mbarrier.pending_count(self.answer, self.token)
        self.record(self.pending)
        self.credit(1, 0)

    @precondition(lambda self: not self.broken and len(self.answers) < 60)
    @rule(parity=st.integers(0, 1))
    def test_wait(self, parity: int) -> None:
        """mbarrier.test_wait.parity (A21)."""
        self.k.mbarrier.test_wait(self.answer, self.barrier, parity)
        self.record(int(self.phase & 1 != parity))

    @precondition(lambda self: self.broken)
    @rule()
    def nothing_more(self) -> None:
        """Nothing that follows undefined behaviour has a meaning."""

    def record(self, expected: int) -> None:
        """The answer goes to global memory."""
        self.k.mem.store(self.out[len(self.answers)], self.answer)
        self.answers.append(expected)

    def teardown(self) -> None:
        """Runs what was recorded and compares."""
        if not hasattr(self, "opening"):
            return
        self.opening.__exit__(None, None, None)
        run = simulate(self.k.finish())
        rules = [f.rule for f in run.findings]
        assert rules == ([self.broken] if self.broken else []), run.findings
        if not self.broken:
            assert run.outputs["out"][: len(self.answers)].tolist() == self.answers


OneBarrier.TestCase.settings = settings(
    max_examples=60, stateful_step_count=20, deadline=None, derandomize=True, database=None
)
TestOneBarrier = OneBarrier.TestCase
