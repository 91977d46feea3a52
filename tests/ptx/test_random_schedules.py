"""How many random schedules are run where what is open is nothing that schedules decide."""

from __future__ import annotations

from tests.gpu import needs
from tests.ptx.test_ways import verdict

pytestmark = needs.compiler

#: the reduction of old samples: lanes of the last warp go on without `__syncwarp`
REDUCTION = """__shared__ volatile int s[128]; s[t] = x[g]; __syncthreads();
if (t < 64) s[t] += s[t + 64]; __syncthreads();
if (t < 32) { s[t] += s[t + 32]; s[t] += s[t + 16]; s[t] += s[t + 8]; s[t] += s[t + 4]; }
if (t == 0) z[blockIdx.x] = s[0] + s[1] + s[2] + s[3];"""
#: after some turns a branch on data, with a barrier in its arm
STEERED = """__shared__ int s[64]; for (int i = 0; i < TURNS; i++) { s[t] = i; __syncthreads();
y[g] += s[t ^ 33]; __syncthreads(); }
if (x[g] > 0) __syncthreads();"""


def test_lanes_that_exchange_without_meeting() -> None:
    """No schedule of the machine's moves shows in which order lanes go: some are run, not all."""
    found = verdict(REDUCTION, threads=128, schedules=64)
    assert found.verdict == "bounded"
    assert "unordered strong accesses of lanes of one warp to one location" in found.reasons[0]
    assert 4 < found.stats.schedules < 16


def test_data_that_steers_after_some_turns() -> None:
    """A long run is not repeated as often as a short one; how often, its steps alone say."""
    short, long = (verdict(STEERED.replace("TURNS", turns), schedules=64) for turns in ("2", "300"))
    assert (short.verdict, long.verdict) == ("bounded", "bounded")
    assert "the contents of x" in short.reasons[0]
    assert (short.stats.schedules, long.stats.schedules) == (65, 5)
