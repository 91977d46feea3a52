"""PTX and machine code out of what programs load: fatbins as nvcc writes them, and PTX itself.

A fatbin is a header and entries, each PTX or machine code for one target. nvcc compresses them with
zstd, older ones with LZ4, unless it was told not to (``--compress-mode=none``).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Iterator
from ctypes.util import find_library
from functools import cache
from itertools import chain
from operator import itemgetter
from struct import Struct

Read = Callable[[int, int], bytes]

_WRAPPER, _FATBIN, _ELF = 0x466243B1, 0xBA55ED50, b"\x7fELF"
#: magic, version, data, what is linked to it
_WRAPPER_HEAD = Struct("<IIQQ")
#: magic, version, bytes of this header, bytes behind it
_FATBIN_HEAD = Struct("<IHHQ")
#: kind, version, bytes of this header, bytes behind it, of these compressed ones, ..., flags, ...,
#: bytes when they are not compressed
_ENTRY = Struct("<HHIQI20xQ8xQ")
_PTX, _CUBIN = 1, 2
#: bytes of an entry when it is not compressed, and of all entries of a file together, at most
MOST_UNPACKED, MOST_TOGETHER = 1 << 28, 1 << 31
#: entries of a kind in a file, at most
MOST_ENTRIES = 1 << 17
_LZ4, _ZSTD = 0x2000, 0x8000
_PAGE = 4096
_DAMAGED = "a compressed entry is damaged"
_CUT = "the fatbin is damaged: an entry does not fit into it"
#: of an ELF file of 64 bits: offset of section headers, their size, how many, which has the names
_ELF_HEAD, _SECTION = Struct("<40xQ10xHHH"), Struct("<II16xQQ")
_NOBITS = 8
#: sections of programs with fatbins: those of whole programs, and of parts that are to be linked
_SECTIONS = (b".nv_fatbin", b"__nv_relfatbin")
#: blanks of one line only: else each of many empty lines is a beginning of all that follow
_TARGET = re.compile(r"^[ \t]*\.target[ \t]+sm_(\d{2,3})([af]?)\b", re.MULTILINE)


def architecture(target: str = "sm_90a") -> str:
    """Options with which nvcc of CUDA 12 and 13 puts machine code and PTX of a target, and of no
    other, into a program (``-arch=sm_90a`` alone makes PTX of ``compute_90`` as well)."""
    number = target.removeprefix("sm_")
    return f"-gencode 'arch=compute_{number},code=[sm_{number},compute_{number}]'"


class FatbinError(Exception):
    """What was loaded cannot be read; the message is for the user."""


def image(read: Read, address: int) -> bytes:
    """The module at an address of the program; ``read(address, size)`` gives its bytes.

    Raises:
        FatbinError: it is too large, or the data of a wrapper is no fatbin.
    """
    head = read(address, 4)
    if int.from_bytes(head, "little") == _WRAPPER:
        address = _WRAPPER_HEAD.unpack(read(address, _WRAPPER_HEAD.size))[2]
        head = read(address, 4)
        if int.from_bytes(head, "little") != _FATBIN:
            raise FatbinError("the module is damaged: its wrapper has no fatbin")
    if int.from_bytes(head, "little") == _FATBIN:
        _, _, header, size = _FATBIN_HEAD.unpack(read(address, _FATBIN_HEAD.size))
        if size > MOST_TOGETHER:
            raise FatbinError(f"the module is damaged: its fatbin has {size} bytes")
        return read(address, header + size)
    if head == _ELF:
        return head
    text = bytearray()
    while len(text) <= MOST_UNPACKED:  # never beyond the page in which the text ends
        start = address + len(text)
        page, end, _ = read(start, _PAGE - start % _PAGE).partition(b"\0")
        text += page
        if end:
            return bytes(text)
    raise FatbinError(f"the PTX has more than {MOST_UNPACKED >> 20} MiB")


def texts(data: bytes) -> Iterator[str]:
    """The PTX modules in an image, decompressed.

    Raises:
        FatbinError: the image is damaged or too large, or an entry cannot be decompressed.
    """
    if data.startswith(_ELF):
        return
    if int.from_bytes(data[:4], "little") != _FATBIN:
        yield data.decode(errors="replace")
        return
    for body in _entries((data,), _PTX):
        yield _text(body)


def texts_of_program(data: bytes) -> Iterator[str]:
    """The PTX modules in an ELF program or library, decompressed; raises like `texts`."""
    for body in _entries(_fatbins(data), _PTX):
        yield _text(body)


def cubins_of_program(data: bytes) -> Iterator[bytes]:
    """The machine code in an ELF program or library, decompressed; raises like `texts`."""
    yield from _entries(_fatbins(data), _CUBIN)


def cubins(data: bytes) -> Iterator[bytes]:
    """The machine code in a fatbin, decompressed; raises like `texts`."""
    yield from _entries((data,), _CUBIN)


def _text(body: bytes) -> str:
    return body.partition(b"\0")[0].decode(errors="replace")


def _entries(sections: Iterable[bytes | memoryview], wanted: int) -> Iterator[bytes]:
    """The entries of a kind in sections, in each of which fatbins follow each other. How large they
    are together is known by their headers, before the first of them takes memory."""
    packed: list[tuple[memoryview, int, int]] = []
    together = 0
    for one in chain.from_iterable(_packed(memoryview(data), wanted) for data in sections):
        packed.append(one)
        full = one[2]
        if len(packed) > MOST_ENTRIES:
            raise FatbinError(f"it has more than {MOST_ENTRIES} entries")
        if full > MOST_UNPACKED:
            raise FatbinError(f"an entry of {full} bytes is larger than {MOST_UNPACKED >> 20} MiB")
        together += full
        if together > MOST_TOGETHER:
            raise FatbinError(
                f"its entries have more than {MOST_TOGETHER >> 30} GiB when decompressed"
            )
    for body, flags, full in packed:
        yield _unpacked(bytes(body), flags, full)


def _packed(data: memoryview, wanted: int) -> Iterator[tuple[memoryview, int, int]]:
    """The entries of a kind as they stand there: bytes, flags, how many bytes they are unpacked."""
    at = 0
    while at + _FATBIN_HEAD.size <= len(data):
        magic, _, header, size = _FATBIN_HEAD.unpack_from(data, at)
        if magic != _FATBIN or header < _FATBIN_HEAD.size:
            return
        entry, at = at + header, at + header + size
        if at > len(data):
            raise FatbinError("the fatbin is damaged: it was cut")
        while entry + _ENTRY.size <= at:
            kind, _, own, length, packed, flags, full = _ENTRY.unpack_from(data, entry)
            begin, entry = entry + own, entry + own + length
            if own < _ENTRY.size or entry > at or packed > length:
                raise FatbinError(_CUT)
            if kind == wanted:
                body = data[begin : begin + (packed or length)]
                yield body, flags, full if flags & (_LZ4 | _ZSTD) else len(body)


def _fatbins(data: bytes) -> Iterator[memoryview]:
    """The sections of an ELF file of 64 bits that hold fatbins; none of what is no such file."""
    if not data.startswith(_ELF + b"\x02\x01") or len(data) < _ELF_HEAD.size:
        return
    start, size, count, names = _ELF_HEAD.unpack_from(data)
    if size < _SECTION.size or names >= count or start + size * count > len(data):
        return
    rows = [_SECTION.unpack_from(data, start + size * number) for number in range(count)]
    texts_at = rows[names][2]
    read = 0
    for name, kind, offset, length in sorted(rows, key=itemgetter(2)):
        text = data[texts_at + name : texts_at + name + 32].partition(b"\0")[0]
        if text not in _SECTIONS or kind == _NOBITS:
            continue
        if offset < read or offset + length > len(data):
            raise FatbinError("its section headers are damaged: fatbins overlap, or were cut")
        read = offset + length
        yield memoryview(data)[offset:read]


def _unpacked(body: bytes, flags: int, size: int) -> bytes:
    if flags & _ZSTD:
        return _zstd(body, size)
    return _lz4(body, size) if flags & _LZ4 else body


def _zstd(body: bytes, size: int) -> bytes:
    library = _libzstd()
    if library is None:
        raise FatbinError(
            "nvcc has compressed the PTX with zstd, and there is no libzstd here: install it "
            "(libzstd1), or compile with --compress-mode=none"
        )
    library.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
    library.ZSTD_decompress.restype = ctypes.c_size_t
    length = ctypes.c_size_t(len(body))
    # before memory is taken for it: a size that is not that of the frame may be any
    if library.ZSTD_getFrameContentSize(body, length) != size:
        raise FatbinError(_DAMAGED)
    made = ctypes.create_string_buffer(size)
    got = library.ZSTD_decompress(made, ctypes.c_size_t(size), body, length)
    if got != size:  # errors are negative numbers
        raise FatbinError(_DAMAGED)
    return made.raw


@cache
def _libzstd() -> ctypes.CDLL | None:
    """The library; looking for it starts processes."""
    name = find_library("zstd")
    return None if name is None else ctypes.CDLL(name)


def _lz4(body: bytes, size: int) -> bytes:
    """One LZ4 block: literals, then a copy of earlier bytes, and again."""
    made = bytearray()
    at = 0
    try:
        while at < len(body):
            token = body[at]
            count, at = _length(body, at + 1, token >> 4)
            made += body[at : at + count]
            at += count
            if at >= len(body):
                break
            back = body[at] | body[at + 1] << 8
            count, at = _length(body, at + 2, token & 15)
            count += 4
            if not 0 < back <= len(made) or len(made) + count > size:
                raise FatbinError(_DAMAGED)
            again = made[-back:]  # it may reach into what it makes
            made += (again * (count // back + 1))[:count]
    except IndexError as error:
        raise FatbinError(_DAMAGED) from error
    if len(made) != size:
        raise FatbinError(_DAMAGED)
    return bytes(made)


def _length(body: bytes, at: int, nibble: int) -> tuple[int, int]:
    """A length of which four bits stand in the token, and where the next thing begins."""
    count = nibble
    while nibble == 15:
        more = body[at]
        at, count = at + 1, count + more
        if more != 255:
            break
    return count, at


def chosen(found: list[str], target: str) -> str | None:
    """The text that a driver would compile for ``target``: the newest that runs on it.

    PTX for ``sm_90a`` runs on sm_90 alone, that for ``sm_100f`` on its family.
    """
    number = int(target[3:].rstrip("af"))
    best: tuple[int, bool, str] | None = None
    for text in found:
        match = _TARGET.search(text)
        if match is None:
            continue
        arch, suffix = int(match[1]), match[2]
        fits = arch == number if suffix == "a" else arch <= number
        if suffix == "f":
            fits = fits and arch // 10 == number // 10
        if fits and (best is None or (arch, bool(suffix)) > best[:2]):
            best = arch, bool(suffix), text
    return None if best is None else best[2]


def targets(found: list[str]) -> tuple[str, ...]:
    """What the texts are for."""
    return tuple(f"sm_{m[1]}{m[2]}" for text in found if (m := _TARGET.search(text)))
