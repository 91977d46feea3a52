"""Options and output that several commands share."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from math import isnan
from pathlib import Path
from shutil import get_terminal_size
from time import monotonic
from typing import Any, TextIO, TypeVar

import click

from tilesim.checker import DEFAULT_BUDGET, MAX_SCHEDULES
from tilesim.checker.assumptions import require_names
from tilesim.checker.report import Values
from tilesim.errors import UsageError
from tilesim.files import files_not_shown, show_below, write_whole
from tilesim.layout import PLAIN, Style
from tilesim.loader import Given
from tilesim.repair import DEFAULT_TIME
from tilesim.wording import count, inert, printable, rough

MAX_SEED = (1 << 63) - 1
MAX_BUDGET = 10**12
#: about three years
_MAX_SECONDS = 10**8
_BUDGET = re.compile(r"(?P<number>\d{1,13}(\.\d{1,6})?)(?P<unit>[smh]?)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600}

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not (name.isidentifier() or name.isdecimal()):
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        if name in pairs:
            raise click.BadParameter(f"{name} is given twice")
        pairs[name] = text
    return pairs


def _budget(ctx: click.Context, param: click.Parameter, value: str) -> int | timedelta:
    """``50000``: warp instructions; ``60s``, ``5m``, ``1.5h``: time."""
    found = _BUDGET.fullmatch(value)
    if found is None or (not found["unit"] and "." in found["number"]):
        raise click.BadParameter(
            f"{value!r} is neither a number of warp instructions nor a time like 60s or 5m"
        )
    if not found["unit"]:
        return _at_most(int(found["number"]), MAX_BUDGET, value)
    seconds = _at_most(float(found["number"]) * _SECONDS[found["unit"]], _MAX_SECONDS, value)
    return timedelta(seconds=seconds)


def _time(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """``90`` or ``90s``, ``5m``, ``1.5h``: time."""
    if value is None:
        return None
    found = _BUDGET.fullmatch(value)
    if found is None or not float(found["number"]):
        raise click.BadParameter(f"{value!r} is not a time like 60s or 5m")
    seconds = float(found["number"]) * _SECONDS[found["unit"] or "s"]
    return timedelta(seconds=_at_most(seconds, _MAX_SECONDS, value))


def _suggest(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """As `_time`; what follows the bare option is taken for its value."""
    try:
        return _time(ctx, param, value)
    except click.BadParameter as error:
        hint = "write the kernels before --suggest, or --suggest=10s"
        raise click.BadParameter(f"{error.message}; {hint}") from None


Number = TypeVar("Number", int, float)


def _at_most(number: Number, limit: int, text: str) -> Number:
    if number > limit:
        raise click.BadParameter(f"{text} is more than {limit}")
    return number


class Place(click.Path):
    """A file or folder; unlike click's, never the empty name, which would be this folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if not os.fspath(value):
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


class Seconds(click.FloatRange):
    """A time: more than nothing, and finite."""

    name = "seconds"

    def __init__(self) -> None:
        super().__init__(0, _MAX_SECONDS, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        number = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


FILE = Place(dir_okay=False, path_type=Path)
PATH = Place(path_type=Path)
FOLDER = Place(file_okay=False, path_type=Path)

param_option: Decorator = click.option(
    "--param", "params", metavar="NAME=VALUE", multiple=True, callback=_pairs,
    help="Set a parameter of the kernel, of PTX a number that it is passed; may be repeated.",
)  # fmt: skip
launch_option: Decorator = click.option(
    "--launch", "launches", metavar="FILE", type=FILE, multiple=True,
    help="A launch description of a PTX kernel; the .json file beside it if not given.",
)  # fmt: skip
entry_option: Decorator = click.option(
    "--entry", metavar="NAME", help="Only this kernel of a PTX file.",
)  # fmt: skip
kernel_option: Decorator = click.option(
    "--kernel", "kernels", metavar="NAME", multiple=True,
    help="Only kernels of this name (with * and ?); may be repeated.",
)  # fmt: skip
source_root_option: Decorator = click.option(
    "--source-root", "source_roots", metavar="FOLDER", type=FOLDER, multiple=True,
    help="Show lines of source files that PTX and .tile files name below this folder; of others "
    "only those below the working folder are shown. Files of another machine are looked for there.",
)  # fmt: skip


def target_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What is said about targets besides their names: the command gets it as ``given``."""

    @wraps(function)
    def command(
        *args: Any, params: dict[str, str], launches: tuple[Path, ...], entry: str | None,
        kernels: tuple[str, ...], source_roots: tuple[Path, ...], **options: Any,
    ) -> Any:  # fmt: skip
        show_below(source_roots)
        given = Given(params, launches, entry, source_roots, kernels)
        return function(*args, given=given, **options)

    with_roots = source_root_option(kernel_option(command))
    return param_option(launch_option(entry_option(with_roots)))


strict_option: Decorator = click.option(
    "--strict", type=click.Choice(["ptx", "practice"]), default="practice", show_default=True,
    help="ptx: the text as written. practice: accept what shipping kernels rely on.",
)  # fmt: skip
seed_option: Decorator = click.option(
    "--seed", type=click.IntRange(0, MAX_SEED), default=0, show_default=True,
    help="Seed of schedules and random inputs.",
)  # fmt: skip
output_option: Decorator = click.option(
    "-o", "--output", type=FILE,
    help="Write the report to a file instead of stdout.",
)  # fmt: skip
format_option: Decorator = click.option(
    "--format", "output_format", type=click.Choice(["text", "json"]), default="text",
    show_default=True, help="How to report.",
)  # fmt: skip
schedules_option: Decorator = click.option(
    "--schedules", type=click.IntRange(0, MAX_SCHEDULES), default=64, show_default=True,
    help="Further schedules to try where one run proves nothing.",
)  # fmt: skip
budget_option: Decorator = click.option(
    "--budget", metavar="N|TIME", callback=_budget, default=str(DEFAULT_BUDGET), show_default=True,
    help="What exploring all schedules may cost: warp instructions, or a time like 60s or 5m.",
)  # fmt: skip


time_limit_option: Decorator = click.option(
    "--time-limit", metavar="TIME", callback=_time,
    help="What checking a kernel may take, all of it included: a time like 60s or 5m.",
)  # fmt: skip


def time_option(name: str, default: str | None, text: str) -> Decorator:
    """A time that is given, with its default."""
    return click.option(
        name, metavar="TIME", default=default, callback=_time, show_default=True, help=text
    )


skip_option: Decorator = click.option(
    "--skip/--no-skip", default=True,
    help="Leave out repetitions of a steady state in the first run, which changes nothing but the "
    "time it takes.",
)  # fmt: skip


def _values(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, Values]:
    """``iterations`` or ``depth=64..:64``, several also behind commas."""
    found: dict[str, Values] = {}
    for text in (part for several in texts for part in several.split(",")):
        name, equals, values = (part.strip() for part in text.partition("="))
        if not name.isidentifier():
            raise click.BadParameter(f"{text!r} is not NAME or NAME=FIRST..[LAST][:STEP]")
        if name in found:
            raise click.BadParameter(f"{name} is named twice")
        try:
            found[name] = Values.parse(values) if equals else Values()
        except UsageError as error:
            raise click.BadParameter(str(error)) from error
    return found


for_all_option: Decorator = click.option(
    "--for-all", "for_all", metavar="NAME[=FIRST..[LAST][:STEP]]", multiple=True, callback=_values,
    help="Prove a kernel for every value of a parameter, from 1 on if none are given.",
)  # fmt: skip


suggest_option: Decorator = click.option(
    "--suggest", metavar="[TIME]", callback=_suggest, is_flag=False,
    flag_value=f"{DEFAULT_TIME.total_seconds():g}s",
    help="Look for repairs of kernels that fail, for so long each, and check every one of them. "
    "[10s]",
)  # fmt: skip


def _denied(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    try:
        return require_names(values)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


deny_option: Decorator = click.option(
    "--deny", metavar="NAME", multiple=True, callback=_denied,
    help="Take a proof that leans on NAME (U12, in-bounds, ...; any) for an error.",
)  # fmt: skip


def style_for(stream: TextIO) -> Style:
    """Colour and the terminal's width on a terminal, neither in a file or pipe; at most so wide as
    can be read.

    ``NO_COLOR`` turns colour off, ``FORCE_COLOR`` on, also where there is no terminal; the width is
    ``COLUMNS`` if that is set, also where there is none.
    """
    forced = os.environ.get("FORCE_COLOR", "0") not in ("", "0")
    terminal = stream.isatty() or forced
    width = PLAIN.width
    if terminal or os.environ.get("COLUMNS"):
        width = min(get_terminal_size((PLAIN.width, 24)).columns, PLAIN.width)
    if not terminal:
        return Style(width)
    plain = os.environ.get("TERM") == "dumb" and not forced
    return Style(width, colour=not plain and not os.environ.get("NO_COLOR"))


def write_file(path: Path, text: str) -> None:
    """Writes a result file, as a whole.

    Raises:
        UsageError: it cannot be written.
    """
    with writing(path):
        write_whole(path, text)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Makes the folder of a result file that is written inside.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except FileExistsError as error:
        raise UsageError(f"cannot write {path}: {error.filename} is a file, no folder") from error
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def say(text: str, *, err: bool = False, colour: bool = False) -> None:
    """Prints lines. What is in ``colour`` is printable already but for the colours; in anything
    else what a terminal would obey is escaped."""
    click.echo(
        text if colour else inert(printable(text)),
        err=err,
        nl=not text.endswith("\n"),
        color=colour,
    )


def say_withheld() -> None:
    """Says on stderr of which files no lines are shown."""
    files = files_not_shown()
    if files:
        more = f" and {count(len(files) - 1, 'other file')}" if len(files) > 1 else ""
        say(
            f"no lines of {files[0]}{more} are shown: outside of the working folder, or hidden "
            "(--source-root FOLDER shows them)", err=True,
        )  # fmt: skip


def deliver(text: str, output: Path | None) -> None:
    """Writes a result, which ends with a newline, to a file or to stdout.

    Raises:
        UsageError: the file cannot be written.
    """
    if output is None:
        click.echo(printable(text), nl=False)
    else:
        write_file(output, printable(text))


class Progress:
    """One line on stderr that says what is going on, if stderr is a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._show = not quiet and sys.stderr.isatty()
        self._start = monotonic()
        #: what each line begins with
        self.before = ""

    def show(self, text: str) -> None:
        """Replaces the line."""
        if self._show:
            width = get_terminal_size().columns - 1
            click.echo(f"\r\x1b[K{printable(self.before + text, '')[:width]}", err=True, nl=False)

    def share(self, done: int, total: int) -> str:
        """``12 of 100 (12 %, 4 min left)``: how long the rest takes if it goes on like this."""
        took = monotonic() - self._start
        left = f", {rough(took / done * (total - done))} left" if 0 < done < total else ""
        return f"{done} of {total} ({100 * done // max(total, 1)} %{left})"

    def clear(self) -> None:
        """Removes the line."""
        if self._show:
            click.echo("\r\x1b[K", err=True, nl=False)
