"""Names of targets: ``place::name[a=1,b=2]``."""

from __future__ import annotations

import os
import re

from tilesim.errors import TargetError

#: a comma before the next ``name=``; values may contain commas
_NEXT = re.compile(r",(?=\s*\w+=)")


def split(text: str) -> tuple[str, str, dict[str, str]]:
    """Place, name and what is in the brackets.

    Raises:
        TargetError: it is no name of that form.
    """
    place, name = _parted(text)
    bracketed: dict[str, str] = {}
    if name.endswith("]") and "[" in name:
        name, _, inside = name[:-1].partition("[")
        for item in filter(None, _NEXT.split(inside)):
            key, equals, value = item.partition("=")
            if not equals:
                raise TargetError(f"{text}: {item!r} in the brackets is not NAME=VALUE")
            bracketed[key.strip()] = value.strip()
    if not place or place.startswith("::") or (text != place and not name):
        raise TargetError(
            f"{text!r} names no kernel; write file.py, file.py::kernel, package.module::kernel, "
            "file.tile, file.ptx or a folder"
        )
    return place, name, bracketed


def _parted(text: str) -> tuple[str, str]:
    """What is before and behind the ``::``; the name of a file that is there may have some, too."""
    pieces = text.split("::")
    ends = range(1, len(pieces) + 1)
    end = next((n for n in ends if os.path.exists("::".join(pieces[:n]))), 1)
    return "::".join(pieces[:end]), "::".join(pieces[end:])
