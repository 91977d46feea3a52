"""Small programs in the notation of docs/soundness/proofs, for comparison with the proof kernel."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.sim.steps import (
    Arrive,
    ArriveExpect,
    Complete,
    Expect,
    Join,
    Read,
    Small,
    Step,
    Wait,
    Write,
)

Choose = Callable[[int], int]


def coq(small: Small) -> str:
    """The program as a term of `Model.program`. A join that waits is two instructions there."""
    threads = []
    for steps in small.warps:
        code: list[str] = []
        for step in steps:
            match step:
                case Arrive(barrier=b, count=n):
                    code.append(f"Arrive {b} {n} 0")
                case ArriveExpect(barrier=b, words=n):
                    code.append(f"Arrive {b} 1 {16 * n}")
                case Expect(barrier=b, words=n):
                    code.append(f"Expect {b} {16 * n}")
                case Complete(barrier=b, words=n):
                    code.append(f"Complete {b} {16 * n}")
                case Wait(barrier=b, parity=parity):
                    code.append(f"WaitParity {b} {'true' if parity else 'false'}")
                case Read(word=x):
                    code.append(f"Read {x}")
                case Write(word=x):
                    code.append(f"Write {x}")
                case Join(id=n, warps=warps, waits=waits):
                    code.append(f"Join {n} {warps}")
                    if waits:
                        code.append(f"Await {n} {len(code) - 1}")
                case _:
                    raise TypeError(f"{step} is not modelled")
        threads.append(f"[{'; '.join(code)}]")
    return f"Program [{'; '.join(threads)}] [{'; '.join(map(str, small.counts))}]"


class _Maker:
    """Makes a program step by step along a run that succeeds, so that many are right."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.warps: list[list[Step]] = [[] for _ in range(2 + choose(2))]
        self.counts = [1 + choose(2) for _ in range(1 + choose(2))]
        self.phase = [0] * len(self.counts)
        self.pending = list(self.counts)
        self.words = [0] * len(self.counts)

    def credit(self, steps: list[Step], b: int) -> None:
        choose, words = self.choose, self.choose(3)
        if self.pending[b] and choose(3):
            self.pending[b] -= 1
            if choose(3):
                steps.append(Arrive(b))
            else:
                steps.append(ArriveExpect(b, words))
                self.words[b] += words
        elif choose(2):
            words = max(self.words[b], 0) or words
            steps.append(Complete(b, words))
            self.words[b] -= words
        else:
            steps.append(Expect(b, words))
            self.words[b] += words
        if not self.pending[b] and not self.words[b]:
            self.phase[b] += 1
            self.pending[b] = self.counts[b]

    def step(self) -> None:
        choose = self.choose
        steps, b = self.warps[choose(len(self.warps))], choose(len(self.counts))
        match choose(10):
            case 0:
                steps.append(Write(0))
            case 1:
                steps.append(Read(0))
            case 2:
                some = [w for w in self.warps if w is steps or choose(2)]
                for w in some:
                    w.append(Join(0, len(some), waits=w is steps or bool(choose(3))))
            case 3 | 4 | 5:
                steps.append(Wait(b, (self.phase[b] & 1) ^ 1))
            case _:
                self.credit(steps, b)

    def close(self, b: int) -> None:
        """The open phase gets the bytes and arrivals that it lacks."""
        steps = self.warps[self.choose(len(self.warps))]
        if self.words[b] > 0:
            steps.append(Complete(b, self.words[b]))
        if self.words[b] < 0:
            steps.append(Expect(b, -self.words[b]))
        if self.pending[b] and self.choose(4):
            steps.append(Arrive(b, self.pending[b]))


def random_program(seed: int) -> Small:
    """A program of steps that docs/soundness/proofs models."""
    maker = _Maker(random.Random(seed).randrange)
    for _ in range(3 + maker.choose(6)):
        maker.step()
    for b in range(len(maker.counts)):
        if maker.choose(4):
            maker.close(b)
    return Small(tuple(map(tuple, maker.warps)), tuple(maker.counts))
