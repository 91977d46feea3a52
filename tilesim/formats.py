"""Files that tilesim writes and reads again. One version of each is read, others are refused
(`docs/reference/formats.md`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tilesim.errors import UsageError
from tilesim.files import read_regular
from tilesim.version import __version__


def read_object(path: Path, limit: int, what: str, remedy: str = "") -> dict[str, Any]:
    """The JSON object that a file of at most ``limit`` bytes holds.

    Args:
        what: what the file holds.
        remedy: what to do with a file that holds something else.

    Raises:
        UsageError: it cannot be read, or holds something else.
    """
    advice = f"; {remedy}" if remedy else ""
    try:
        data = json.loads(read_regular(path, limit))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}{advice}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path} does not hold {what}{advice}")
    return data


def require(found: object, version: int, what: str, remedy: str) -> None:
    """Refuses a file of another version than the one that is read.

    Args:
        found: what the file says its version is; anything.
        version: the one that is read.
        what: what the file is, with its article.
        remedy: how a file of ``version`` is made.

    Raises:
        UsageError: the versions differ, or the file names none; the message says which is older.
    """
    if isinstance(found, bool) or not isinstance(found, int):
        raise UsageError(f"this is not {what}: it names no version of the format")
    if found == version:
        return
    raise UsageError(
        f"{what} of version {found} of the format; tilesim {__version__} reads version {version}: "
        f"{remedy if found < version else 'update tilesim'}"
    )
