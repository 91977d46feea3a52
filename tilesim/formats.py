"""Versions of files that tilesim writes and reads again: one is read, others are refused
(`docs/reference/formats.md`)."""

from __future__ import annotations

from tilesim.errors import UsageError
from tilesim.version import __version__


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
