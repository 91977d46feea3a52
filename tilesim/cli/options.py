"""Options and output that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, TextIO

import click

from tilesim.errors import UsageError
from tilesim.report.text import PLAIN, Style

MAX_SEED = (1 << 63) - 1

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        if name in pairs:
            raise click.BadParameter(f"{name} is given twice")
        pairs[name] = text
    return pairs


param_option: Decorator = click.option(
    "--param", "params", metavar="NAME=VALUE", multiple=True, callback=_pairs,
    help="Set a parameter of the kernel; may be repeated.",
)  # fmt: skip
strict_option: Decorator = click.option(
    "--strict", type=click.Choice(["ptx", "practice"]), default="practice", show_default=True,
    help="ptx: the text as written. practice: accept what shipping kernels rely on.",
)  # fmt: skip
seed_option: Decorator = click.option(
    "--seed", type=click.IntRange(0, MAX_SEED), default=0, show_default=True,
    help="Seed of schedules and random inputs.",
)  # fmt: skip


def style_for(stream: TextIO) -> Style:
    """Colour and the terminal's width on a terminal, neither in a file or pipe."""
    if not stream.isatty():
        return PLAIN
    width = min(get_terminal_size().columns, PLAIN.width)
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Style(width, colour=not plain)


def write_file(path: Path, text: str) -> None:
    """Writes a result file.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


class Progress:
    """One line on stderr that says what is going on, if stderr is a terminal."""

    def __init__(self) -> None:
        self._show = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replaces the line."""
        if self._show:
            width = get_terminal_size().columns - 1
            click.echo(f"\r\x1b[K{text[:width]}", err=True, nl=False)

    def clear(self) -> None:
        """Removes the line."""
        if self._show:
            click.echo("\r\x1b[K", err=True, nl=False)
