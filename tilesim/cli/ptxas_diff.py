"""``tilesim ptxas-diff``: in what the synchronisation differs that two ptxas make of a PTX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from tilesim.cli import completing
from tilesim.cli.campaign import jobs_option
from tilesim.cli.options import Place, Progress, deliver, format_option, output_option, say
from tilesim.cubin.disassembly import nvdisasm
from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.ptxas import Ptxas, at, compile_ptx
from tilesim.errors import TargetError, TilesimError
from tilesim.loader import files
from tilesim.loader.code_kind import kind_of
from tilesim.loader.machine_code import kernels_of, read
from tilesim.loader.ptx import SUFFIX
from tilesim.loader.text import read_file
from tilesim.parallel import opener, work
from tilesim.records import dataclass
from tilesim.report.ptxas_diff import Compared, closing, code_of, document, text_of
from tilesim.report.result import INTERRUPTED
from tilesim.translation.two_compilers import changes, compiled
from tilesim.wording import count

_TARGET = re.compile(r"^[ \t]*\.target[ \t]+(\w+)", re.MULTILINE)
_VERSION = re.compile(r"^[ \t]*\.version[ \t]+[\d.]+", re.MULTILINE)
#: what a ptxas says of PTX that is newer than it is
_NEWEST = re.compile(r"current version is '(\d+\.\d+)'")
_PLACE = Place(path_type=Path)


@click.command()
@click.argument("old", type=_PLACE)
@click.argument("new", type=_PLACE)
@click.argument(
    "targets", nargs=-1, required=True, metavar="FILE...", shell_complete=completing.targets
)
@format_option
@output_option
@jobs_option("compile and compare files")
@click.pass_context
def command(
    ctx: click.Context, /, old: Path, new: Path, targets: tuple[str, ...], output_format: str,
    output: Path | None, jobs: int,
) -> None:  # fmt: skip
    """Compare the synchronisation that the ptxas OLD and NEW make of PTX.

    OLD and NEW are ptxas, or toolkits that have one. FILE is PTX, machine code with PTX, or a
    folder of these; no launch is needed. Exit: 0 the same, 1 a kernel differs, 2 usage or input
    error, 3 a kernel cannot be compared, 130 interrupted.
    """
    nvdisasm()  # before anything is compiled
    pair = at(old), at(new)
    named = [(target, file) for target in targets for file in files(target)]
    progress, found = Progress(), dict[int, tuple[Compared, ...]]()

    def add(done: tuple[int, tuple[Compared, ...]]) -> None:
        found[done[0]] = done[1]
        progress.show(f"comparing: {count(len(found), 'PTX text')}")

    texts = (text for target, file in named for text in _texts(file, named=file == target))
    tasks = (_Task(number, *pair, text) for number, text in enumerate(texts))
    finished = work(_compare, tasks, opener(jobs), workers=jobs, lost=_lost, on_result=add)
    progress.clear()
    kernels = [one for number in sorted(found) for one in found[number]]
    if output_format == "json":
        deliver(document(kernels, *pair), output)
    else:
        said = [text_of(one, *pair) for one in kernels]
        deliver("".join([*said, closing(kernels, *pair)]), output)
    if not finished:
        say(f"interrupted after {count(len(found), 'PTX text')}", err=True)
    ctx.exit(code_of(kernels) if finished else INTERRUPTED)


@dataclass(frozen=True)
class _Text:
    """A PTX text, and what reports call its file; or why there is none."""

    file: str
    text: str
    problem: str = ""


@dataclass(frozen=True)
class _Task:
    """A text to compare, as plain data."""

    number: int
    old: Ptxas
    new: Ptxas
    text: _Text


def _texts(file: str, *, named: bool) -> Iterator[_Text]:
    """The PTX in a file, which was ``named`` or is in a folder; what is wrong with it is said."""
    path = Path(file)
    if not named and path.suffix != SUFFIX and kind_of(path) is None:
        return  # folders have kernels in other forms, too
    try:
        yield from _of_file(path)
    except TilesimError as error:
        yield _Text(file, "", str(error))


def _of_file(path: Path) -> Iterator[_Text]:
    if path.suffix == SUFFIX:
        yield _Text(str(path), read_file(path))
        return
    if kind_of(path) is None:
        raise TargetError(f"{path} is neither PTX ({SUFFIX}) nor machine code")
    code = read(path)
    found = code.texts or code.embedded
    if not found:
        raise TargetError(f"{path} has no PTX")
    for one in found:
        yield _Text(one.file, one.text)


def _lost(task: _Task, reason: str) -> tuple[int, tuple[Compared, ...]]:
    return task.number, (Compared(task.text.file, "", "not compared", why=reason),)


def _compare(task: _Task) -> tuple[int, tuple[Compared, ...]]:
    """What became of the kernels of a text."""
    file = task.text.file
    if task.text.problem:
        return task.number, (Compared(file, "", "error", why=task.text.problem),)
    try:
        images, note = _images(task)
        old, new = ({one.name: one for one in kernels_of(image)} for image in images)
    except TargetError as error:
        return task.number, (Compared(file, "", "error", why=_without(file, error)),)
    except TilesimError as error:
        return task.number, (Compared(file, "", "not compared", why=_without(file, error)),)
    if not old.keys() & new.keys():
        return task.number, (Compared(file, "", "error", why="it has no kernel"),)
    return task.number, tuple(
        _of_kernel(file, (images[0], old[name]), (images[1], new[name]), note)
        for name in old
        if name in new
    )


def _without(file: str, error: TilesimError) -> str:
    """What an error says; reports name the file themselves."""
    return " ".join(str(error).removeprefix(f"{file}: ").split())


def _images(task: _Task) -> tuple[tuple[Image, Image], str]:
    """What the two make of a text, and a note; of PTX that is newer than one of them, both make
    what it is as PTX of the newest version that this one reads.

    Raises:
        TargetError: it is no PTX.
        CubinError: one refuses it.
    """
    text, file, note = task.text.text, task.text.file, ""
    target = _TARGET.search(text)
    if target is None:
        raise TargetError("it is not PTX: it has no .target")
    newest = min(
        filter(None, (_newest(one, text, file, target[1]) for one in (task.old, task.new))),
        default=None,
    )
    if newest is not None:
        number = ".".join(map(str, newest))
        text, note = _VERSION.sub(f".version {number}", text, count=1), f"as PTX {number}"
    old, new = (compile_ptx(one, text, file, target[1]) for one in (task.old, task.new))
    return (old, new), note


def _newest(ptxas: Ptxas, text: str, file: str, arch: str) -> tuple[int, ...] | None:
    """The newest version of PTX that a ptxas reads, if that is why it refuses a text."""
    try:
        compile_ptx(ptxas, text, file, arch)
    except CubinError as error:
        found = _NEWEST.search(str(error))
        return None if found is None else tuple(map(int, found[1].split(".")))
    return None


def _of_kernel(
    file: str, old: tuple[Image, Symbol], new: tuple[Image, Symbol], note: str
) -> Compared:
    name = old[1].name
    codes = [image.contents(image.sections[symbol.section]) for image, symbol in (old, new)]
    if codes[0] == codes[1]:
        return Compared(file, name, "same code", note=note)
    try:
        sides = [compiled(image, symbol, image.ptx or "") for image, symbol in (old, new)]
        found = changes(sides[0], sides[1])
    except TilesimError as error:
        return Compared(file, name, "not compared", why=" ".join(str(error).split()))
    return Compared(file, name, "differs" if found else "same synchronisation", found, note=note)
