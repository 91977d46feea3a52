"""Kernels by several producers, each compiled by several ptxas.

``python -m tests.translation.corpus --ptxas DIR --out OUT`` makes the PTX of the producers that are
installed (``--producer``: of these), and compiles all PTX in OUT with each ``DIR/VERSION/ptxas``.
OUT gets ``PRODUCER/KERNEL.ptx``, ``PRODUCER/KERNEL.VERSION.cubin``, and README: how many there are.
What is there already is not made again, so that each producer can be run by a Python of its own.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from tests.translation.producers import PRODUCERS, installed, texts

#: seconds of one compilation
_MOST_SECONDS = 120
_TARGET = re.compile(r"^\.target\s+(sm_\w+)", re.MULTILINE)
_VERSION = re.compile(r"^\.version\s+[\d.]+", re.MULTILINE)
#: what a ptxas says of PTX that is newer than it is
_NEWEST = re.compile(r"current version is '([\d.]+)'")
#: characters of a name of a file
_LONGEST = 120


class Member(NamedTuple):
    """A cubin of the corpus."""

    producer: str
    kernel: str
    ptxas: str
    path: Path


def members(folder: Path) -> Iterator[Member]:
    """The cubins in a folder that the command has made, by producer, kernel and ptxas."""
    for path in sorted(folder.glob("*/*.cubin")):
        kernel, _, version = path.stem.rpartition(".v")
        yield Member(path.parent.name, kernel, version, path)


def assemblers(folder: Path) -> Mapping[str, Path]:
    """Each ptxas in a folder, by the name of the folder that it is in."""
    return {path.parent.name: path for path in sorted(folder.glob("*/ptxas"))}


def file_name(kernel: str) -> str:
    """A name of a file for the name of a kernel."""
    return re.sub(r"[^\w.=-]+", "_", kernel).strip("_")[:_LONGEST]


def assemble(ptxas: Path, text: Path, cubin: Path) -> str:
    """Compiles PTX with line tables; what ptxas says if it refuses.

    PTX that is newer than ptxas is compiled as of the newest version that ptxas has.
    """
    ptx = text.read_text()
    target = _TARGET.search(ptx)
    if target is None:
        return "it has no .target"
    for _ in range(2):
        command = [str(ptxas), "-lineinfo", f"-arch={target[1]}", "-o", str(cubin), str(text)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            return f"it takes more than {_MOST_SECONDS} s"
        if not done.returncode:
            return ""
        newest = _NEWEST.search(done.stderr)
        if newest is None:
            break
        text = cubin.with_suffix(".ptx")
        text.write_text(_VERSION.sub(f".version {newest[1]}", ptx, count=1))
    cubin.unlink(missing_ok=True)
    return next((line for line in done.stderr.splitlines() if line.strip()), "no reason")


def make_texts(producer: str, out: Path) -> int:
    """Writes the PTX of a producer; how many."""
    folder = out / producer
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, ptx in texts(producer):
        (folder / f"{file_name(name)}.ptx").write_text(ptx)
        count += 1
    return count


def compile_texts(out: Path, ptxas: Mapping[str, Path]) -> Iterator[str]:
    """Compiles what is not compiled; what is refused."""
    for text in sorted(out.glob("*/*.ptx")):
        for version, path in ptxas.items():
            cubin = text.parent / f"{text.stem}.v{version}.cubin"
            lowered = cubin.with_suffix(".ptx")
            if cubin.exists():
                continue
            said = assemble(path, text, cubin)
            lowered.unlink(missing_ok=True)
            if said:
                yield f"{text.relative_to(out)} {version}: {said}"


def summary(out: Path) -> str:
    """How many kernels and cubins there are, by producer."""
    count = Counter(path.parent.name for path in out.glob("*/*.ptx"))
    cubins = Counter((member.producer, member.ptxas) for member in members(out))
    versions = sorted({version for _, version in cubins})
    rows = [["producer", "PTX", *versions]]
    for producer in sorted(count):
        each = (str(cubins[producer, version]) for version in versions)
        rows.append([producer, str(count[producer]), *each])
    sums = (str(sum(cubins[producer, version] for producer in count)) for version in versions)
    rows.append(["all", str(count.total()), *sums])
    table = "\n".join("".join(f"{cell:<14}" for cell in row).rstrip() for row in rows)
    layout = "PRODUCER/KERNEL.ptx, compiled with -lineinfo to PRODUCER/KERNEL.vPTXAS.cubin"
    return f"{layout}\n\n{table}\n"


@click.command(help=__doc__)
@click.option("--ptxas", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--producer", "chosen", multiple=True, type=click.Choice(list(PRODUCERS)))
@click.option("--compile-only", is_flag=True, help="Only compile the PTX that is in OUT.")
def main(ptxas: Path, out: Path, chosen: tuple[str, ...], compile_only: bool) -> None:
    """Makes the corpus."""
    out.mkdir(parents=True, exist_ok=True)
    for producer in () if compile_only else chosen or PRODUCERS:
        if installed(producer):
            click.echo(f"{producer}: {make_texts(producer, out)} kernels")
        else:
            click.echo(f"{producer}: {PRODUCERS[producer].needs} is not installed")
    refused = list(compile_texts(out, assemblers(ptxas)))
    (out / "refused.txt").write_text("".join(f"{line}\n" for line in refused))
    (out / "README").write_text(summary(out))
    click.echo(summary(out))


if __name__ == "__main__":
    main()
