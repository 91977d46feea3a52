"""Names of targets: ``place::name[a=1,b=2]``."""

from __future__ import annotations

import re

from tilesim.errors import TargetError

#: a comma before the next ``name=``; values may contain commas
_NEXT = re.compile(r",(?=\s*\w+=)")


def split(text: str) -> tuple[str, str, dict[str, str]]:
    """Place, name and what is in the brackets.

    Raises:
        TargetError: it is no name of that form.
    """
    place, _, name = text.partition("::")
    bracketed: dict[str, str] = {}
    if name.endswith("]") and "[" in name:
        name, _, inside = name[:-1].partition("[")
        for item in filter(None, _NEXT.split(inside)):
            key, equals, value = item.partition("=")
            if not equals:
                raise TargetError(f"{text}: {item!r} in the brackets is not NAME=VALUE")
            bracketed[key.strip()] = value.strip()
    if not place or ("::" in text and not name):
        raise TargetError(
            f"{text!r} names no kernel; write file.py, file.py::kernel, package.module::kernel, "
            "file.tile, file.ptx or a folder"
        )
    return place, name, bracketed
