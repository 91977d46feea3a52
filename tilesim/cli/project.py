"""Defaults from ``[tool.tilesim]`` of the project's ``pyproject.toml``.

A table of a command's name (``[tool.tilesim.check]``) holds for that command only. The file may
come with a foreign repository, so it can set what is checked and how, but name no file that is
written or shown.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from tilesim.errors import UsageError
from tilesim.files import read_regular
from tilesim.wording import did_you_mean

FILE = "pyproject.toml"
_MAX_BYTES = 1 << 20
#: parameters of commands, as click calls them, that a project can set
SETTABLE = frozenset({
    "targets", "python", "kernels", "strict", "schedules", "budget", "time_limit", "max_schedules",
    "preemptions", "jobs", "seed", "accept", "skip", "skip_empty", "suggest", "output_format",
    "deny",
})  # fmt: skip
_SPELLED = {"output_format": "format", "kernels": "kernel"}
_NAMES = {_SPELLED.get(name, name.replace("_", "-")): name for name in SETTABLE}


def defaults(command: click.Command, commands: Mapping[str, object], name: str) -> dict[str, Any]:
    """What the project says of the parameters of the command ``name``, by parameter.

    Raises:
        UsageError: the file cannot be read, or says what cannot be set.
    """
    path = _find(Path.cwd())
    section = {} if path is None else _section(path)
    own = section.get(name, {})
    for key, value in section.items():
        if isinstance(value, dict) and key not in commands:
            raise UsageError(f"{path}: there is no command {key}{did_you_mean(key, commands)}")
    if not isinstance(own, dict):
        raise UsageError(f"{path}: [tool.tilesim.{name}] is not a table")
    known = {p.name: p for p in command.params}
    result = {}
    any_format = name == "check" or "output_format" not in known
    shared = ((k, v) for k, v in _plain(section) if any_format or k != "format" or _has(known, v))
    for key, value in (*shared, *own.items()):
        if key not in _NAMES:
            raise UsageError(
                f"{path}: [tool.tilesim] cannot set {key!r}{did_you_mean(key, _NAMES)}; it can set "
                f"{', '.join(sorted(_NAMES))}"
            )
        if _NAMES[key] in known:
            parameter = known[_NAMES[key]]
            if isinstance(value, bool) and not getattr(parameter, "is_flag", False):
                raise UsageError(f"{path}: {key} takes a value, and is not a switch: {value}")
            result[_NAMES[key]] = _value(path, key, value)
    return result


def _has(parameters: Mapping[str, click.Parameter], format_: object) -> bool:
    """Whether a command has a format; ``check`` has more of them than others, so a project's
    default may be none of theirs."""
    kind = parameters["output_format"].type if "output_format" in parameters else None
    return isinstance(kind, click.Choice) and format_ in kind.choices


def _plain(section: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in section.items() if not isinstance(value, dict))


def _value(path: Path | None, key: str, value: object) -> Any:
    """As click takes a default; targets are said from where the file is."""
    match value:
        case bool():
            return value
        case int() | float() | str():
            return str(value)
        case list() if all(isinstance(item, str) for item in value):
            if key == "targets" and path is not None and path.parent != Path.cwd():
                return tuple(str(path.parent / item) for item in value)
            return tuple(value)
        case _:
            raise UsageError(f"{path}: {key} is not a text, number, boolean or list of texts")


def _find(folder: Path) -> Path | None:
    """The next ``pyproject.toml`` in a folder or above it."""
    for place in (folder, *folder.parents):
        if (place / FILE).is_file():
            return place / FILE
    return None


def _section(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(read_regular(path, _MAX_BYTES).decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    section = document.get("tool", {})
    section = section.get("tilesim", {}) if isinstance(section, dict) else {}
    if not isinstance(section, dict):
        raise UsageError(f"{path}: [tool.tilesim] is not a table")
    return section
