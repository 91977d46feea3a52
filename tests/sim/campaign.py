"""`python -m tests.sim.campaign --cases N --seed S`: `check` against the reference, at length.

Every case is a random small program (`tests.sim.generate`), of one family of steps or, by default,
of all: a third are programs of lanes. The reference follows all of its executions; the verdict of
`check`, made from one run, and for one in ``--full`` cases also with exploration, must not
contradict it. A contradiction is shrunk and printed, with the execution that shows who is right.

The programs follow from the seeds alone (which mean others when the generator changes). With
``--save`` finished blocks are kept in a file, and the same command goes on where it was
interrupted, or stopped by ``--minutes``. The campaign of a release, within ten minutes on 16 cores:

    python -m tests.sim.campaign --cases 200000 --seed 30000000 --full 5 --jobs 16 --save FILE
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tests.sim.comparison import Tally, compare, table
from tests.sim.generate import FAMILIES
from tests.sim.steps import Family

#: seeds that a process takes at a time
_BLOCK = 250
#: blocks that are handed out ahead, per process
_AHEAD = 2


@dataclass(frozen=True)
class _Comparison:
    """`compare` with its options, for another process."""

    every: int
    family: Family | None

    def __call__(self, seeds: range) -> tuple[int, Tally]:
        """The first seed, and what came out."""
        return seeds.start, compare(seeds, every=self.every, family=self.family)


class _Saved:
    """Finished blocks, one per line of a file: what was asked for, the first seed, the tally."""

    def __init__(self, path: Path | None, options: argparse.Namespace) -> None:
        self._path = path
        self._asked = f"{options.family or 'all'} {options.full} {_BLOCK}"

    def load(self) -> dict[int, Tally]:
        """The blocks of the same campaign; a line that was cut off is left out."""
        found: dict[int, Tally] = {}
        if self._path is None or not self._path.exists():
            return found
        for line in self._path.read_text().splitlines():
            try:
                block = json.loads(line)
            except ValueError:
                continue
            if block["asked"] == self._asked:
                seen = Counter({tuple(key): count for key, count in block["seen"]})
                found[block["start"]] = Tally(
                    seen, block["contradictions"], block["other_rules"], block["uncertified"],
                    block["states"], block.get("later", 0), block.get("summed", 0),
                )  # fmt: skip
        return found

    def add(self, start: int, tally: Tally) -> None:
        """Keeps a finished block."""
        if self._path is None:
            return
        block = {
            "asked": self._asked, "start": start, "seen": list(tally.seen.items()),
            "contradictions": tally.contradictions, "other_rules": tally.other_rules,
            "uncertified": tally.uncertified, "states": tally.states, "later": tally.later,
            "summed": tally.summed,
        }  # fmt: skip
        with self._path.open("a") as file:
            file.write(json.dumps(block) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Runs a campaign; 1 if anything was contradicted."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.campaign", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--cases", type=int, default=1000, help="programs to compare")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first program")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--family", choices=FAMILIES, help="kind of steps (default: all)")
    parser.add_argument("--full", type=int, default=8, help="explore every n-th (0: none)")
    parser.add_argument("--minutes", type=float, help="begin no more blocks after this long")
    parser.add_argument("--save", type=Path, help="file to keep finished blocks in, and go on from")
    options = parser.parse_args(arguments)
    tally = Tally()
    try:
        _run(tally, options)
    except KeyboardInterrupt:
        print("interrupted; so far:", file=sys.stderr)
    print("\n".join(table(tally)))
    proved, correct = tally.certified()
    print(f"correct programs proved or exhausted: {proved:,} of {correct:,}")
    for reason, example in tally.uncertified.items():
        print(f"  not proved ({reason}): seed {example}")
    print(
        f"{tally.cases:,} programs; states of the reference: {tally.states:,}; failures by a rule "
        f"broken after another: {tally.later}; by another rule: {len(tally.other_rules)}; "
        f"contradictions: {len(tally.contradictions)}"
    )
    return 1 if tally.contradictions else 0


def _run(tally: Tally, options: argparse.Namespace) -> None:
    """Adds the blocks as they come, with progress; contradictions are printed at once."""
    saved = _Saved(options.save, options)
    before = saved.load()
    end = options.seed + options.cases
    blocks = [range(start, min(start + _BLOCK, end)) for start in range(options.seed, end, _BLOCK)]
    for block in blocks:
        if block.start in before:
            tally.add(before[block.start])
    todo = [block for block in blocks if block.start not in before]
    start, cases = time.monotonic(), 0
    until = start + 60 * options.minutes if options.minutes else float("inf")
    for first, part in _parts(todo, options, until):
        saved.add(first, part)
        tally.add(part)
        cases += part.cases
        took = time.monotonic() - start
        for text in (*part.contradictions, *part.other_rules):
            print(text, file=sys.stderr)
        print(
            f"{tally.cases:,} programs, {took:.0f} s, {cases / took:.1f} per second, "
            f"{len(tally.contradictions)} contradictions",
            file=sys.stderr,
        )


def _parts(
    blocks: list[range], options: argparse.Namespace, until: float
) -> Iterator[tuple[int, Tally]]:
    """The blocks, in their order; none is begun after ``until``."""
    one = _Comparison(options.full, options.family)
    if options.jobs <= 1:
        for block in blocks:
            if time.monotonic() > until:
                return
            yield one(block)
        return
    with ProcessPoolExecutor(options.jobs) as pool:
        ahead = options.jobs * _AHEAD
        running = [pool.submit(one, block) for block in blocks[:ahead]]
        left = iter(blocks[ahead:])
        while running:
            yield running.pop(0).result()
            if time.monotonic() < until:
                running += [pool.submit(one, block) for block in islice(left, 1)]


if __name__ == "__main__":
    raise SystemExit(main())
