"""Takes out of a core dump what is not its kernels': ``python -m tests.autopsy.scrub IN OUT
--kernel NAME... [--path OLD=NEW...]``.

A dump holds the driver's own cubins, and paths of the machine on which it was made. Images of which
no symbol is a kernel's are zeroed; a path is replaced by one of at most its length, filled up with
``_``. Places and sizes stay, so the rest of the dump is as it was. Do this before one is committed.
"""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from tilesim.errors import TilesimError, UsageError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_IMAGES = (b".cudbg.elfimg.", b".cudbg.relfimg.")
#: what looks like a path of a machine: two folders at least
_PATH = re.compile(rb"/[A-Za-z0-9_.+-]{2,}(?:/[A-Za-z0-9_.+-]+)+")


def scrubbed(data: bytes, kernels: Iterable[str], paths: Mapping[str, str]) -> bytes:
    """The dump without the images that hold none of the kernels, and with other paths.

    Raises:
        UsageError: it is no dump, an image of no kernel is left, or a path is longer than the one
            that it replaces.
    """
    names = [b"\0" + name.encode() + b"\0" for name in kernels]
    made, kept = bytearray(data), 0
    for start, size in _images(data):
        if any(name in data[start : start + size] for name in names):
            kept += 1
        else:
            made[start : start + size] = bytes(size)
    if not kept:
        raise UsageError("no image of the dump holds one of the kernels")
    for old, new in sorted(paths.items(), key=lambda pair: -len(pair[0])):
        if len(new) > len(old):
            raise UsageError(f"{new} is longer than {old}, which it is to replace")
        made = made.replace(old.encode(), new.encode().ljust(len(old), b"_"))
    return bytes(made)


def paths_in(data: bytes) -> list[str]:
    """What looks like a path in a dump, without repetition."""
    return sorted({found.decode() for found in _PATH.findall(data)})


def _images(data: bytes) -> Iterator[tuple[int, int]]:
    """Where the cubins lie in it."""
    if len(data) < _HEADER.size or not data.startswith(b"\x7fELF"):
        raise UsageError("this is not a core dump")
    _, _, _, _, _, _, table, _, _, _, _, entry, count, names = _HEADER.unpack_from(data)
    if table + _SECTION.size > len(data):
        raise UsageError("this core dump is cut")
    first = _SECTION.unpack_from(data, table)
    count, names = count or first[5], first[6] if names == 0xFFFF else names
    strings = _SECTION.unpack_from(data, table + names * entry)[4]
    for number in range(count):
        row = _SECTION.unpack_from(data, table + number * entry)
        if data.startswith(_IMAGES, strings + row[0]):
            yield row[4], row[5]


def read(path: Path) -> bytes:
    """The bytes of a dump, unpacked if it is compressed."""
    data = path.read_bytes()
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def packed(data: bytes) -> bytes:
    """The same, compressed: equal dumps are equal files."""
    return gzip.compress(data, 9, mtime=0)


@click.command(help=__doc__)
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--kernel", "kernels", multiple=True, required=True, help="Its images are kept.")
@click.option("--path", "paths", multiple=True, metavar="OLD=NEW", help="A path, and another.")
def main(source: Path, target: Path, kernels: tuple[str, ...], paths: tuple[str, ...]) -> None:
    """Scrubs a dump."""
    pairs = {old: new for old, _, new in (pair.partition("=") for pair in paths)}
    try:
        data = scrubbed(read(source), kernels, pairs)
    except TilesimError as error:
        raise click.ClickException(str(error)) from error
    target.write_bytes(packed(data))
    click.echo(f"{target}: {target.stat().st_size:,} bytes")
    for path in paths_in(data):
        click.echo(f"left: {path}")


if __name__ == "__main__":
    main()
