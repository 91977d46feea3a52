"""``python -m benchmarks.finder_mutants``: whether wrong programs expose mutants of tilesim.

``collect FOLDER [PYTEST ARGUMENTS]`` runs tests and keeps each program that they check;
``draw FOLDER`` adds programs that are drawn; ``run FOLDER`` draws mutants of the code on which
proofs rest, and checks under each the programs that execute its line: the wrong ones, and if none
of them exposes it, the right ones. Figures are in benchmarks/finder_mutants/README.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import asdict, replace
from datetime import date
from functools import partial
from importlib import import_module
from itertools import chain, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click

from benchmarks.finder_mutants.corpus import FOLDER, SUFFIX, Result
from benchmarks.finder_mutants.judge import Executed, Outcome, execute, judge
from benchmarks.finder_mutants.mutate import Mutant, drawn, mutants

#: what is mutated: files of each part, as patterns below ``tilesim/``
PARTS: dict[str, tuple[str, ...]] = {
    "lanes": (
        "sim/machine/lane_groups.py", "sim/machine/lanes.py", "sim/machine/divergence.py",
        "sim/observers/lane_races.py", "sim/machine/async_groups.py",
        "sim/observers/phase_conditions.py", "sim/machine/compose.py",
        "sim/machine/execute/lanes.py", "sim/machine/execute/copies.py", "sim/machine/control.py",
        "transforms/rewrite.py", "analysis/elected_lane.py", "analysis/uniformity.py",
        "analysis/executing_warps.py", "analysis/thread_values.py", "analysis/divergence.py",
        "sim/schedulers/lane_lag.py", "checker/verdict.py",
    ),
    "skipping": (
        "sim/affine/loop_*.py", "sim/affine/shifts.py", "sim/affine/snapshot.py",
        "sim/affine/state_fields.py", "sim/affine/evaluator.py", "sim/machine/moving_boxes.py",
    ),
    "for-all": (
        "sim/affine/*parameter*.py", "checker/for_all.py",
    ),
    "grids": ("sim/affine/cluster_*.py", "sim/affine/footprints.py", "checker/grid.py"),
    "unknown data": (
        "sim/machine/havoc.py", "sim/observers/uninitialised_reads.py", "sim/machine/expression.py",
        "sim/observers/accessed_bytes.py", "sim/machine/unknown.py",
    ),
    "spin loops": (
        "transforms/await_condition.py", "transforms/word_waits.py", "analysis/preimage.py",
        "sim/observers/monotone_words.py", "sim/observers/monotone_accesses.py",
    ),
    "PTX passes": (
        "ptx/passes/forwarding.py", "ptx/passes/simplify.py", "ptx/constants.py", "ptx/liveness.py",
        "ptx/inline.py", "ptx/accumulators.py", "transforms/predicated.py", "arith/bit_vectors.py",
        "arith/opcodes.py", "arith/integers.py",
    ),
}  # fmt: skip
#: of the right programs, of which there are more, one of so many is looked at
ONE_RIGHT_OF = 6
#: seconds for the wrong programs of one mutant, and for the right ones
LIMIT = 60.0
#: programs that are tried of a mutant whose line none executes
UNREACHED = 300
#: kinds of outcomes that expose nothing
SILENT = ("alive", "cut off")


def modules(part: str) -> list[str]:
    """The modules of a part that there are."""
    found = [path for pattern in PARTS[part] for path in sorted(Path("tilesim").glob(pattern))]
    return [".".join(path.with_suffix("").parts) for path in found if path.name != "__init__.py"]


@click.group()
def main() -> None:
    """Mutants of the code on which proofs rest."""


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def collect(folder: Path, arguments: tuple[str, ...]) -> None:
    """Keeps in FOLDER what the tests check that pytest runs with ARGUMENTS."""
    environment = os.environ | {FOLDER: str(folder.resolve())}
    plugin = ("-p", "benchmarks.finder_mutants.collect")
    command = (sys.executable, "-m", "pytest", "-q", *plugin, *arguments)
    subprocess.run(command, env=environment, check=False)
    print(f"{len(list(folder.glob(f'*{SUFFIX}')))} checks in {folder}")


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--cases", default=2000, show_default=True, help="Programs to draw.")
@click.option("--seed", default=0, show_default=True, help="Number of the first one.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True)
def draw(folder: Path, cases: int, seed: int, jobs: int) -> None:
    """Keeps in FOLDER programs that are drawn."""
    os.environ[FOLDER] = str(folder.resolve())
    with ProcessPoolExecutor(jobs) as pool:
        list(pool.map(_draw, range(seed, seed + cases), chunksize=4))
    print(f"{len(list(folder.glob(f'*{SUFFIX}')))} checks in {folder}")


def _draw(number: int) -> None:
    """In a process of its own: what is drawn imports the checker."""
    import_module("benchmarks.finder_mutants.draw").draw(number)


@main.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--mutants", "number", default=300, show_default=True, help="Mutants of all parts.")
@click.option("--seed", default=0, show_default=True)
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True)
@click.option("--part", "parts", multiple=True, type=click.Choice(list(PARTS)))
@click.option("--limit", default=LIMIT, show_default=True, help="Seconds for a mutant's programs.")
@click.option("--output", type=click.Path(path_type=Path), help="Also write each mutant there.")
@click.option(
    "--again",
    type=click.Path(exists=True, path_type=Path),
    help="Only the mutants that an earlier run left alive there; of the others what it wrote.",
)
def run(
    folder: Path,
    number: int,
    seed: int,
    jobs: int,
    parts: tuple[str, ...],
    limit: float,
    output: Path | None,
    again: Path | None,
) -> None:
    """Draws mutants, and says of each which program of FOLDER exposes it."""
    chosen = parts or tuple(PARTS)
    programs = executed(folder, jobs)
    print(
        f"{sum(p.result.is_wrong for p in programs)} wrong programs, {len(programs)} in all",
        flush=True,
    )
    outcomes: dict[str, list[Outcome]] = {part: [] for part in chosen}
    if again is None:
        each = -(-number // len(chosen))
        drawn_of = {part: drawn(modules(part), each, seed) for part in chosen}
    else:
        earlier = read(again)
        drawn_of = {part: left(earlier[part]) for part in chosen}
        for part in chosen:
            outcomes[part] += [o for o in earlier[part] if column(o) not in LEFT]
    with ThreadPoolExecutor(jobs) as pool:
        # one of each part in turn: what an interrupted run has said is of all parts
        turns = zip_longest(*([(part, one) for one in some] for part, some in drawn_of.items()))
        futures = {
            pool.submit(try_out, mutant, folder, programs, limit): part
            for part, mutant in filter(None, chain.from_iterable(turns))
        }
        for future in as_completed(futures):
            outcome = future.result()
            outcomes[futures[future]].append(outcome)
            print(line(outcome), flush=True)
    if output is not None:
        found = {part: [asdict(o) for o in in_order(some)] for part, some in outcomes.items()}
        output.write_text(json.dumps(found, indent=1))
    print(f"\n{date.today()}, seed {seed}\n\n{table(outcomes)}")


@main.command("table")
@click.argument("found", type=click.Path(exists=True, path_type=Path))
def tabulate(found: Path) -> None:
    """The table of what `run` has written to FOUND, by what is known to be harmless now."""
    print(table(read(found)))


def read(found: Path) -> dict[str, list[Outcome]]:
    """The outcomes that `run` has written to a file, by part."""
    parts = json.loads(found.read_text())
    return {part: [Outcome(**one) for one in some] for part, some in parts.items()}


def left(outcomes: Iterable[Outcome]) -> list[Mutant]:
    """The mutants that nothing exposed, as the code is now.

    One that is no longer there, as its line was changed, is left out.
    """
    found = []
    for outcome in outcomes:
        if column(outcome) in LEFT:
            same = [m for m in mutants(outcome.module) if m.says == outcome.change]
            found += sorted(same, key=lambda m: abs(m.line - outcome.line))[:1]
    return found


@main.command(hidden=True)
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.argument("module")
@click.argument("number", type=int)
def one(folder: Path, module: str, number: int) -> None:
    """Judges a mutant by the programs that standard input names; prints the outcome as JSON."""
    asked = json.load(sys.stdin)
    programs = [_entry(entry) for entry in asked["programs"]]
    mutant = mutants(module)[number]
    outcome = judge(mutant, folder, programs, asked["limit"], wrong=asked["wrong"])
    print(json.dumps(asdict(outcome)))


def executed(folder: Path, jobs: int) -> list[Executed]:
    """What each program of a corpus executes: from the folder, or made and kept there."""
    index = folder / "executed.json"
    if not index.exists():
        every = [module for part in PARTS for module in modules(part)]
        paths = sorted(folder.glob(f"*{SUFFIX}"))
        with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
            found = pool.map(partial(_executed, every), enumerate(paths), chunksize=4)
            index.write_text(json.dumps([asdict(entry) for entry in found if entry is not None]))
    return [_entry(entry) for entry in json.loads(index.read_text())]


def _entry(entry: dict[str, Any]) -> Executed:
    """What `asdict` has made of it and JSON has kept."""
    told = entry["result"]
    lists = {name: tuple(told[name]) for name in ("rules", "findings")}
    return Executed(**entry | {"result": Result(**told | lists)})


def _executed(modules: list[str], numbered: tuple[int, Path]) -> Executed | None:
    number, path = numbered
    return execute(path, modules, right=number % ONE_RIGHT_OF == 0)


def try_out(mutant: Mutant, folder: Path, programs: Sequence[Executed], limit: float) -> Outcome:
    """What wrong programs that execute a mutant's line say of it; if nothing, the right ones.

    A line that none executes may be one whose result an earlier program has left behind: the fast
    ones are tried all the same.
    """
    reaching = [p for p in programs if mutant.line in p.lines.get(mutant.module, ())]
    tried = reaching or sorted(programs, key=lambda p: (p.seconds, p.name))[:UNREACHED]
    wrong, right = (
        _outcome(mutant, folder, [p for p in tried if p.result.is_wrong == wrong], limit, wrong)
        for wrong in (True, False)
    )
    if wrong.kind in SILENT and right.kind not in SILENT:
        return right
    if wrong.kind not in SILENT:
        return wrong
    kind = wrong.kind if reaching else "not executed"
    return replace(wrong, kind=kind, less=wrong.less + right.less, more=wrong.more + right.more)


def _outcome(
    mutant: Mutant, folder: Path, programs: Sequence[Executed], limit: float, wrong: bool
) -> Outcome:
    """What some programs say of a mutant, in a process of its own."""
    listed = [asdict(p) | {"lines": {}} for p in programs]
    asked = {"wrong": wrong, "limit": limit, "programs": listed}
    command = (
        sys.executable, "-m", "benchmarks.finder_mutants", "one", str(folder), mutant.module,
        str(mutant.number),
    )  # fmt: skip
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return Outcome(
            mutant.module, mutant.number, mutant.line, mutant.says, wrong, "error", 0, "", last
        )  # fmt: skip
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def line(outcome: Outcome) -> str:
    """A mutant and what came of it, on one line."""
    by = f" by a {'wrong' if outcome.wrong else 'right'} program" if outcome.program else ""
    says = f": {outcome.says}" if outcome.says else ""
    place = f"{outcome.module}:{outcome.line}: {outcome.change}"
    return f"{outcome.kind}{by} ({outcome.tried}){says} | {place}"


def in_order(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes in the order of the text."""
    return sorted(outcomes, key=lambda o: (o.module, o.line, o.number))


#: columns of the table
COLUMNS = (
    "false proof", "other verdict, rule or error", "other finding", "right programs only",
    "more work only", "harmless by reading", "alive", "not executed",
)  # fmt: skip
#: columns of mutants that wrong programs expose, that make no false proof, and of the others
EXPOSED = COLUMNS[:3]
HARMLESS = COLUMNS[3:6]
LEFT = COLUMNS[6:]
#: by module and change, why a mutant makes no false proof, of those for which code was read
READ = Path(__file__).with_name("harmless.json")


def harmless() -> dict[str, dict[str, str]]:
    """What is in `READ`."""
    found: dict[str, dict[str, str]] = json.loads(READ.read_text())
    return found


def column(outcome: Outcome) -> str:
    """The column in which a mutant counts."""
    if outcome.kind in (*SILENT, "not executed"):
        if outcome.more and not outcome.less:
            return "more work only"
        if outcome.change in harmless().get(outcome.module, ()):
            return "harmless by reading"
        return "not executed" if outcome.kind == "not executed" else "alive"
    if not outcome.wrong and outcome.kind != "unearned claim":
        return "right programs only"
    return outcome.kind if outcome.kind in EXPOSED else "other verdict, rule or error"


def table(outcomes: dict[str, list[Outcome]]) -> str:
    """The mutants by part: what the wrong programs say of them.

    ``exposed`` is the share of mutants that a wrong program exposes among those that are not
    harmless. Harmless are those that right programs alone expose, which lose proofs and make no
    false one, those under which programs execute more instructions, never fewer, and get the same
    findings (they leave out less than tilesim does), and those of which reading the code says so.
    """
    heads = ("part", "mutants", *COLUMNS, "exposed")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    every: dict[str, list[Outcome]] = defaultdict(list, outcomes)
    if len(outcomes) > 1:
        every["all"] = [outcome for some in outcomes.values() for outcome in some]
    for part, some in every.items():
        counts = Counter(column(outcome) for outcome in some)
        exposed = sum(counts[c] for c in EXPOSED)
        relevant = len(some) - sum(counts[c] for c in HARMLESS)
        share = f"{100 * exposed / relevant:.0f} %" if relevant else "-"
        rows.append(
            f"| {part} | {len(some)} | {' | '.join(str(counts[c]) for c in COLUMNS)} | {share} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
