"""The command group: loads commands when they are used, and turns errors into exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

import click

from tilesim.cli.project import defaults
from tilesim.cli.streams import OutputError
from tilesim.errors import TilesimError
from tilesim.limits import patient
from tilesim.report.result import BROKEN_PIPE, INTERNAL, INTERRUPTED, USAGE, Failure
from tilesim.wording import did_you_mean, printable

BUG = (
    "this is a bug in tilesim: please report it with the kernel and the output of "
    "tilesim --debug ..."
)


_MEMORY = "there is not enough memory"
#: what click says of "abc" where a number is meant
_NO_NUMBER = "is not a valid integer range"


class WrongUsage(click.ClickException):
    """A mistake on the command line, in one line like every other error."""

    exit_code = USAGE

    def show(self, file: IO[Any] | None = None) -> None:
        """Prints it to stderr."""
        click.echo(f"error: {printable(self.message)}", file=file, err=True)


@contextmanager
def _in_one_line(name: str, ctx: click.Context | None = None) -> Iterator[None]:
    """Turns click's report of wrong usage, which has several lines, into a `WrongUsage`.

    ``name``: what the command is called that has no context yet; ``ctx``: the group's.
    """
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        if error.ctx is not None:
            name = error.ctx.command_path
        elif ctx is not None:
            name = f"{ctx.command_path} {ctx.invoked_subcommand}"
        text = " ".join(error.format_message().split()).removesuffix(".")
        text = text.replace(_NO_NUMBER, f"is not an integer like {_example(error)}")
        raise WrongUsage(f"{text[:1].lower()}{text[1:]} (see {name} --help)") from None


def _example(error: click.UsageError) -> int:
    """A number that the option takes which the error is about."""
    option = error.param if isinstance(error, click.BadParameter) else None
    least = option.type.min if option is not None and isinstance(option.type, click.IntRange) else 0
    return option.default if option is not None and type(option.default) is int else int(least or 1)


class Command(click.Command):
    """A command outside of the group whose usage errors look like those of the group."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        """Parses the command line.

        Raises:
            WrongUsage: it makes no sense.
        """
        with _in_one_line(info_name or ""):
            return super().make_context(info_name, args, *rest, **extra)


class Group(click.Group):
    """A group whose commands live in modules of their own, as the attribute ``command``."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command's module."""
        if cmd_name not in self._modules:
            return None
        command: click.Command = import_module(self._modules[cmd_name]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command and what comes after it; its defaults are those of the project.

        Raises:
            UsageError: there is no such command.
        """
        if args and not args[0].startswith("-") and args[0] not in self._modules:
            hint = did_you_mean(args[0], self._modules)
            ctx.fail(f"there is no command {args[0]!r}{hint}")
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not ctx.resilient_parsing:
            ctx.default_map = {name: defaults(command, self._modules, name)}
        return name, command, rest

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        """Parses the options before the command.

        Raises:
            WrongUsage: they make no sense.
        """
        try:
            with _in_one_line(info_name or ""):
                return super().make_context(info_name, args, *rest, **extra)
        except OutputError as error:  # of --help or --version
            raise WrongUsage(str(error)) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; user errors exit with 2, internal ones with 70, no tracebacks."""
        try:
            with patient(), _in_one_line("tilesim", ctx):
                result = super().invoke(ctx)
            sys.stdout.flush()
        except (click.exceptions.Exit, click.ClickException):
            raise
        except TilesimError as error:
            show_traceback(error, debug=bool(ctx.params.get("debug")))
            click.echo(f"error: {printable(str(error))}", err=True)
            ctx.exit(USAGE)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _silence(sys.stdout)
            ctx.exit(BROKEN_PIPE)
        except Exception as error:
            if isinstance(error, FileNotFoundError) and not _has_folder():
                click.echo("error: the working folder has been deleted; use another", err=True)
                ctx.exit(USAGE)
            if isinstance(error, MemoryError):
                click.echo(f"error: {_MEMORY}", err=True)
                ctx.exit(USAGE)
            _internal(error, debug=bool(ctx.params.get("debug")))
            ctx.exit(INTERNAL)
        return result


def _has_folder() -> bool:
    """Whether the working folder still exists; a kernel's file may have removed it."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _silence(stream: Any) -> None:
    """Keeps the interpreter from complaining about a closed pipe when it flushes at exit."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _internal(error: Exception, *, debug: bool) -> None:
    if debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    click.echo(f"internal error: {printable(describe(error))}", err=True)
    click.echo(BUG, err=True)


def internal_failure(kernel: str, error: Exception, *, debug: bool) -> Failure:
    """The result of a kernel on which tilesim itself failed; ``debug`` shows where on stderr."""
    if debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if isinstance(error, MemoryError):
        return Failure(kernel, f"{_MEMORY}{f': {error}' if str(error) else ''}")
    return Failure(kernel, f"internal error: {describe(error)}; {BUG}", internal=True)


def show_traceback(error: TilesimError, *, debug: bool) -> None:
    """With ``--debug`` also where the user's code has raised what became ``error``."""
    if debug and error.__cause__ is not None:
        text = "".join(traceback.format_exception(error.__cause__))
        click.echo(printable(text), err=True, nl=False)


def debugging(ctx: click.Context) -> bool:
    """Whether ``tilesim --debug`` was said."""
    return bool(ctx.find_root().params.get("debug"))


def describe(error: Exception) -> str:
    """Type and message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
