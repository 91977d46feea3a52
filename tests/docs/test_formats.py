"""docs/reference/formats.md says which versions the code writes and reads, and refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilesim.checker import certificate_file, witness
from tilesim.checker.witness import Witness
from tilesim.cli import last_failed, resume
from tilesim.errors import TilesimError, UsageError
from tilesim.formats import require
from tilesim.ir.text import parse
from tilesim.ir.text.forms import VERSIONS
from tilesim.ptx import description
from tilesim.report import document
from tilesim.report.autopsy import json as autopsy
from tilesim.sim.schedulers import frontier
from tilesim.sim.schedulers.frontier import Frontier
from tilesim.version import __version__

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"
_ROW = re.compile(r"^\| ([a-z ]+) \| (\S+) \| ", re.MULTILINE)
KNOWN = {
    "report": document.SCHEMA,
    "autopsy": autopsy.SCHEMA,
    "launch description": description.SCHEMA,
    "certificate": certificate_file.VERSION,
    "witness": witness.SCHEMA,
    "explorations": resume.SCHEMA,
    "failed kernels": last_failed.SCHEMA,
    "exploration": frontier.SCHEMA,
    "program": VERSIONS["tile"],
    "lowered program": VERSIONS["mir"],
}


def test_the_table_says_the_versions_of_the_code() -> None:
    rows = {name: version.strip("`") for name, version in _ROW.findall(PAGE.read_text())}
    del rows["format"]
    assert rows == {name: str(version) for name, version in KNOWN.items()}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (6, "a thing of version 6 of the format; tilesim {} reads version 7: make it again"),
        (8, "a thing of version 8 of the format; tilesim {} reads version 7: update tilesim"),
        (None, "this is not a thing: it names no version of the format"),
        ("7", "this is not a thing: it names no version of the format"),
        (True, "this is not a thing: it names no version of the format"),
    ],
)
def test_one_version_is_read(found: object, says: str) -> None:
    require(7, 7, "a thing", "make it again")
    with pytest.raises(UsageError) as error:
        require(found, 7, "a thing", "make it again")
    assert str(error.value) == says.format(__version__)


@pytest.mark.parametrize(
    ("read", "version"),
    [
        (lambda n: certificate_file.read(f'{{"tilesim-certificate": {n}}}'), KNOWN["certificate"]),
        (lambda n: Witness.from_dict({"schema": n}), KNOWN["witness"]),
        (lambda n: Frontier.from_dict({"schema": n}), KNOWN["exploration"]),
        (lambda n: parse(f"tile {n}\n", "k.tile"), KNOWN["program"]),
    ],
    ids=["certificate", "witness", "exploration", "program"],
)
@pytest.mark.parametrize("other", [-1, 1])
def test_readers_say_which_version_they_read(
    read: Callable[[int], Any], version: int, other: int
) -> None:
    """Of one before theirs, and of one that is not known yet."""
    with pytest.raises(TilesimError, match=rf"version {version}\b"):
        read(version + other)
    with pytest.raises(TilesimError, match=r"^((?!version).)*$"):
        read(version)
