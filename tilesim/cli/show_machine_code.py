"""What ``tilesim show`` prints of machine code: the inventory of its kernels."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from time import monotonic

from tilesim.cli.options import Progress
from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image, Symbol
from tilesim.cubin.inventory import SECONDS, inventory
from tilesim.errors import NoKernelError, TargetError
from tilesim.layout import Style
from tilesim.loader import Given
from tilesim.loader.code_kind import kind_of
from tilesim.loader.machine_code import each_image, kernels_of
from tilesim.loader.names import split
from tilesim.ptx.demangle import readable
from tilesim.report.inventory import SCHEMA, to_json, to_text
from tilesim.wording import count, did_you_mean


def inside(text: str) -> tuple[str, ...]:
    """The files of machine code that a target names: itself, or those in its folder and below, in
    order; none if it is something else. Core dumps are not among them."""
    place = split(text)[0]
    files = sorted(Path(place).rglob("*")) if os.path.isdir(place) else [Path(place)]
    return tuple(str(file) for file in files if kind_of(file) not in (None, "dump"))


def show(
    text: str, given: Given, limit: timedelta, output_format: str, style: Style
) -> str | None:  # fmt: skip
    """The inventories of all kernels that a target names, one after the other, or as a document;
    None if it has no machine code of kernels. What the time did not suffice for is said, and which
    files in a folder cannot be read.

    Raises:
        TargetError: a file that is named cannot be read, or has no such kernel.
        CubinError: nvdisasm is not there, or cannot read a kernel that is named.
    """
    until = monotonic() + limit.total_seconds()
    found = _Kernels(text, given)
    progress = Progress()
    texts: list[str] = []
    documents: list[dict[str, object]] = []
    notes: list[str] = []
    try:
        for file, image, symbol in found:
            rest = until - monotonic()
            if rest <= 0:
                done = count(len(documents), "kernel")
                notes.append(f"the time was over after {done} (--time-limit)")
                break
            name = readable(symbol.name)
            progress.show(f"reading {name}, {count(len(documents), 'kernel')} before")
            try:
                one = inventory(image, symbol, seconds=min(rest, SECONDS))
            except CubinError as error:
                if found.is_one:
                    raise
                found.skipped.append(str(error))
                continue
            if output_format == "text":
                texts.append(to_text(one, f"{file}::{name}", style))
            documents.append(to_json(one, file))
    finally:
        progress.clear()
    if found.is_empty():
        return None
    notes += (f"not read: {why}" for why in found.skipped)
    if output_format == "json":
        document = {"schema": SCHEMA, "kernels": documents, "notes": notes}
        return json.dumps(document, indent=2) + "\n"
    return "\n".join([*texts, *(f"{note}\n" for note in notes)])


class _Kernels:
    """The kernels that a target names, with their files and cubins."""

    def __init__(self, text: str, given: Given) -> None:
        place, name, _ = split(text)
        self.text = text
        self.files = inside(text)
        self.is_one = not os.path.isdir(place)
        self._wanted = (*([name] if name else []), *given.kernels)
        self._names: dict[str, None] = {}
        self._any = False
        #: why files or kernels of a folder were not read
        self.skipped: list[str] = []

    def __iter__(self) -> Iterator[tuple[str, Image, Symbol]]:
        for file in self.files:
            try:
                for image in each_image(Path(file)):
                    for symbol in kernels_of(image):
                        if self._is_wanted(symbol):
                            self._any = True
                            yield file, image, symbol
            except (TargetError, CubinError) as error:
                if self.is_one:
                    raise
                self.skipped.append(str(error))

    def _is_wanted(self, symbol: Symbol) -> bool:
        names = symbol.name, readable(symbol.name)
        self._names.setdefault(names[1])
        return not self._wanted or any(
            name == wanted or fnmatchcase(name, wanted) for name in names for wanted in self._wanted
        )

    def is_empty(self) -> bool:
        """Whether there are no kernels at all.

        Raises:
            NoKernelError: there are some, and none of those that are wanted.
        """
        if self._any or self.skipped:
            return False
        if not self._names:
            return True
        hint = did_you_mean(self._wanted[0], list(self._names))
        raise NoKernelError(f"{self.text} has no kernel {', '.join(self._wanted)}{hint}")
