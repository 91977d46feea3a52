"""Dumps that are damaged, hostile or strange, each with what is to be said of it.

A case is a function that makes the bytes; its name in the table says what is wrong. `REFUSED` are
those that are refused, with a part of the message; `READ` are read, with what remains.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tilesim.autopsy.core_dump import CoreDump
from tilesim.records import replace

from .dump_writer import Cta, Device, Dump, Grid, Lane, Memory, Module, Section, Warp, copy_of, load

DUMPS = Path(__file__).parent / "dumps"
ENTRY = 0x7F0000001000
HUGE = 1 << 63
Make = Callable[[], bytes]


@cache
def ring() -> bytes:
    """The dump of an H200."""
    return gzip.decompress((DUMPS / "ring.nvcudmp.gz").read_bytes())


@cache
def code() -> bytes:
    """The cubin of that dump, at another address."""
    dump = CoreDump(DUMPS / "ring.nvcudmp.gz")
    original = dump.image_of(dump.grids[0], relocated=False)
    assert original is not None
    return load(original.data, {"_Z4ringPKfPfii": ENTRY})


def warp(number: int = 0, lanes: Sequence[int] = range(32)) -> Warp:
    """A warp of a block with one dimension."""
    return Warp(
        [Lane(n, ENTRY + 16, (32 * number + n, 0, 0), range(8)) for n in lanes], slot=number
    )


def small() -> Dump:
    """Two CTAs of two warps on two SMs, in a grid of three, at an instruction of `code`."""
    ctas = [Cta(1, (n, 0, 0), [warp(0), warp(1)], n, bytes(1024)) for n in range(2)]
    grid = Grid(1, ENTRY, (3, 1, 1), (64, 1, 1), params=bytes(24), registers=8)
    device = Device([grid], ctas, [[Module(code())]], sms=2)
    return Dump([device], [Memory(0x7F0100000000, bytes(range(64)))])


def on_device(**changes: Any) -> bytes:
    """The small dump with another device."""
    dump = small()
    return replace(dump, devices=[replace(dump.devices[0], **changes)]).to_bytes()


def with_grid(**changes: Any) -> bytes:
    """The small dump with another grid."""
    return on_device(grids=[replace(small().devices[0].grids[0], **changes)])


def with_cta(**changes: Any) -> bytes:
    """The small dump with another first CTA."""
    first, second = small().devices[0].ctas
    return on_device(ctas=[replace(first, **changes), second])


def with_warps(*warps: Warp) -> bytes:
    """The small dump with other warps in the first CTA."""
    return with_cta(warps=warps)


def with_lane(**changes: Any) -> bytes:
    """The small dump with another lane 0 in its first warp."""
    first = warp()
    return with_warps(replace(first, lanes=[replace(first.lanes[0], **changes), *first.lanes[1:]]))


def with_section(beginning: str, **changes: Any) -> bytes:
    """The small dump, of which the first section of this name is changed."""

    def change(sections: list[Section]) -> None:
        n = next(n for n, s in enumerate(sections) if s.name.startswith(beginning))
        sections[n] = replace(sections[n], **changes)

    return small().to_bytes(change)


def without(beginning: str) -> bytes:
    """The small dump without the contents of sections of this name, which are of another type."""

    def change(sections: list[Section]) -> None:
        for n, s in enumerate(sections):
            if s.name.startswith(beginning):
                sections[n] = Section(s.name, 0x1000, b"")

    return small().to_bytes(change)


def with_more(*more: Section) -> bytes:
    """The small dump with more sections."""
    return small().to_bytes(lambda sections: sections.extend(more))


def number(beginning: str, dump: Dump | None = None) -> int:
    """The number of the first section of a name."""
    sections = (dump or small()).sections()
    return next(n for n, s in enumerate(sections) if s.name.startswith(beginning))


def copied(beginning: str) -> bytes:
    """The small dump with a section twice."""
    return with_more(small().sections()[number(beginning)])


def with_header(beginning: str, at: int, form: str, value: int, data: bytes | None = None) -> bytes:
    """The small dump, or another one; in the header of a section stands something else."""
    image = bytearray(data or small().to_bytes())
    (start,) = struct.unpack_from("<Q", image, 40)
    struct.pack_into(f"<{form}", image, start + 64 * number(beginning) + at, value)
    return bytes(image)


def patched(at: int, form: str, value: int) -> bytes:
    """The small dump with another value in the header of the file."""
    image = bytearray(small().to_bytes())
    struct.pack_into(f"<{form}", image, at, value)
    return bytes(image)


def cut(size: int) -> bytes:
    """So many bytes of the real dump; from its end if below 0."""
    return ring()[:size]


def elf(machine: int, kind: int) -> bytes:
    """The header of another ELF file."""
    ident = b"\x7fELF\2\1\1" + bytes(9)
    return struct.pack("<16sHHIQQQIHHHHHH", ident, kind, machine, 1, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0)


def flipped(data: bytes, seed: int) -> bytes:
    """A dump with other values in some bytes, most of them in headers; perhaps it is cut."""
    chance = random.Random(seed)
    (headers,) = struct.unpack_from("<Q", data, 40)
    places = ((0, 64), (headers, len(data)), (headers, len(data)), (0, len(data)))
    image = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(*chance.choice(places))
        image[at] = chance.choice((0, 0xFF, image[at] ^ 1 << chance.randrange(8)))
    if not chance.randrange(10):
        del image[chance.randrange(len(image)) :]
    return bytes(image)


def packed() -> bytes:
    """The small dump, compressed."""
    return gzip.compress(small().to_bytes(), 1)


def bomb(first: bytes, mebibytes: int) -> bytes:
    """A few bytes that are many when they are unpacked."""
    return gzip.compress(first) + gzip.compress(bytes(1 << 20)) * mebibytes


# offsets in the header of a file and of a section, with their forms
_COUNT, _NAMES, _ROW, _START = (60, "H"), (62, "H"), (58, "H"), (40, "Q")
_TYPE, _FLAGS, _ADDRESS, _OFFSET, _SIZE = (4, "I"), (8, "Q"), (16, "Q"), (24, "Q"), (32, "Q")
_LINK, _INFO, _ENTRY = (40, "I"), (44, "I"), (56, "Q")

REGISTERS = ".cudbg.regs.dev0.sm0.cta0.wp0.ln0"
SHARED = ".cudbg.shared"

NO_GRIDS = "CTAs run on device 0, and it has no table of grids"

#: what is wrong, the file, and what the message says
REFUSED: dict[str, tuple[Make, str]] = {
    # the file
    "empty": (lambda: b"", "empty"),
    "one byte": (lambda: b"\x7f", "not a core dump"),
    "text": (lambda: b"Hello\n" * 100, "not a core dump"),
    "a cubin": (lambda: elf(190, 2), "it is a cubin"),
    "a file of CUDA of no known type": (lambda: elf(190, 3), "an ELF file of something else"),
    "a core of a CPU": (lambda: elf(62, 4), "an ELF file of something else"),
    "32 bits": (lambda: patched(4, "B", 1), "not a core dump"),
    "big-endian": (lambda: patched(5, "B", 2), "not a core dump"),
    "cut in the header": (lambda: cut(40), "not a core dump"),
    "cut behind the header": (lambda: cut(64), "was it cut?"),
    "cut in half": (lambda: cut(len(ring()) // 2), "was it cut?"),
    "cut in the section headers": (lambda: cut(len(ring()) - 1000), "was it cut?"),
    "last byte is missing": (lambda: cut(-1), "was it cut?"),
    # compressed
    "nothing, compressed": (lambda: gzip.compress(b""), "empty"),
    "text, compressed": (lambda: gzip.compress(b"Hello"), "not a core dump"),
    "compressed twice": (lambda: gzip.compress(packed()), "not a core dump"),
    "compressed and cut": (lambda: packed()[:-20], "it cannot be read"),
    "cut behind the header of gzip": (lambda: packed()[:8], "it cannot be read"),
    "compressed and damaged": (
        lambda: packed()[:200] + bytes(50) + packed()[250:],
        "it cannot be read",
    ),
    "a bomb": (lambda: bomb(b"", 1100), "not a core dump"),
    # section headers
    "no sections": (lambda: patched(*_COUNT, 0), "0 tables of devices"),
    "no section headers": (lambda: patched(*_START, 0), "it has no section headers"),
    "section headers at 2^63": (lambda: patched(*_START, HUGE), "was it cut?"),
    "section headers at 2^64 - 1": (lambda: patched(*_START, (1 << 64) - 1), "was it cut?"),
    "65,535 section headers": (lambda: patched(*_COUNT, 0xFFFF), "do not fit"),
    "section headers of 40 bytes": (lambda: patched(*_ROW, 40), "section headers of 40 bytes"),
    "section headers of 0 bytes": (lambda: patched(*_ROW, 0), "section headers of 0 bytes"),
    "2^63 sections": (
        lambda: bytes_with(patched(*_COUNT, 0), 32, "Q", HUGE),
        "section headers do not fit",
    ),
    # tables
    "no table of devices": (lambda: without(".cudbg.devtbl"), "0 tables of devices"),
    "two tables of devices": (lambda: copied(".cudbg.devtbl"), "2 tables of devices"),
    "no device": (lambda: Dump([]).to_bytes(), "table of devices is empty"),
    "33 devices": (lambda: Dump([Device(sms=1)] * 33).to_bytes(), "33 devices: more than"),
    "devices of an unknown driver": (
        lambda: with_section(".cudbg.devtbl", data=bytes(64), entry=64),
        "rows of 64 bytes, shorter than any driver's",
    ),
    "half of a row": (
        lambda: with_section(".cudbg.gridtbl", data=bytes(200)),
        "200 bytes in rows of 136",
    ),
    "rows of 2^63 bytes": (lambda: with_header(".cudbg.gridtbl", *_ENTRY, HUGE), "in rows of"),
    "rows of one byte": (lambda: with_header(".cudbg.wptbl", *_ENTRY, 1), "more than 32"),
    "a table of 2^63 bytes": (lambda: with_header(".cudbg.wptbl", *_SIZE, HUGE), "was it cut?"),
    "a table behind the end": (lambda: with_header(".cudbg.lntbl", *_OFFSET, HUGE), "was it cut?"),
    "registers behind the end": (lambda: with_header(REGISTERS, *_OFFSET, HUGE), "was it cut?"),
    "registers of 2^64 - 1 bytes": (
        lambda: with_header(REGISTERS, *_SIZE, (1 << 64) - 1),
        "was it cut?",
    ),
    "global memory behind the end": (
        lambda: with_header(".cudbg.global", *_SIZE, HUGE),
        "was it cut?",
    ),
    "an image behind the end": (lambda: with_header(".cudbg.relf", *_OFFSET, HUGE), "was it cut?"),
    "compressed section": (lambda: with_header(SHARED, *_FLAGS, 0x802), "which no driver does"),
    "shared memory of 2 MiB": (lambda: with_cta(shared=bytes(2 << 20)), "more than any GPU"),
    "parameters of 1 MiB": (lambda: with_grid(params=bytes(1 << 20)), "more than any GPU"),
    "registers twice": (lambda: copied(REGISTERS), "the same thing of one row"),
    "a table of lanes twice": (lambda: copied(".cudbg.lntbl"), "the same thing of one row"),
    "a table of grids whose link is itself": (
        lambda: with_header(".cudbg.gridtbl", *_LINK, number(".cudbg.gridtbl")),
        NO_GRIDS,
    ),
    "a link whose low bits are a section": (
        lambda: with_header(".cudbg.gridtbl", *_LINK, number(".cudbg.devtbl") + (1 << 24)),
        NO_GRIDS,
    ),
    "a link behind all sections": (
        lambda: with_header(".cudbg.gridtbl", *_LINK, 0xFFFFFFFF),
        NO_GRIDS,
    ),
    # grids and CTAs
    "a CTA of an unknown grid": (lambda: with_cta(grid=7), "grid 7, which is not in it"),
    "a grid twice": (
        lambda: on_device(grids=[*small().devices[0].grids] * 2),
        "two grids of device 0 have one id",
    ),
    "4,097 grids": (
        lambda: on_device(grids=[small().devices[0].grids[0]] * 4097),
        "4097 grids of device 0: more than",
    ),
    "a CTA outside of the grid": (lambda: with_cta(index=(3, 0, 0)), "CTA (3, 0, 0) of a grid"),
    "a CTA at 2^32 - 1": (lambda: with_cta(index=(0, 0, 0xFFFFFFFF)), "of a grid (3, 1, 1)"),
    "a CTA twice": (lambda: with_cta(index=(1, 0, 0)), "is in it twice"),
    "a grid of 0 CTAs that runs": (lambda: with_grid(grid=(0, 1, 1)), "of a grid (0, 1, 1)"),
    "blocks of 0 threads": (lambda: with_grid(block=(64, 0, 1)), "blocks of 0 threads"),
    "blocks of 2,048 threads": (lambda: with_grid(block=(64, 32, 1)), "blocks of 2048 threads"),
    "blocks of 2^96 threads": (lambda: with_grid(block=(0xFFFFFFFF,) * 3), "threads"),
    "65 CTAs on an SM": (
        lambda: on_device(ctas=[Cta(1, (0, 0, 0), [])] * 65),
        "65 CTAs of device 0 SM 0: more than",
    ),
    "a cluster of 2^96 CTAs": (
        lambda: with_cta(cluster_size=(0xFFFFFFFF,) * 3),
        "larger than any GPU's",
    ),
    # warps and lanes
    "33 warps in a CTA": (lambda: with_warps(*[warp()] * 33), "33 warps of"),
    "160 warps on an SM": (
        lambda: on_device(ctas=[Cta(1, (0, 0, 0), [warp(0, ())] * 32)] * 5),
        "160 warps: more than any GPU",
    ),
    "a warp twice": (lambda: with_warps(warp(0), warp(0)), "has a warp 0 twice"),
    "lane 40": (lambda: with_lane(number=40), "has a lane 40"),
    "lane 2^32 - 1": (lambda: with_lane_word(16, 0xFFFFFFFF), "has a lane 4294967295"),
    "a lane twice": (lambda: with_lane(number=1, thread=(1, 0, 0)), "has a lane 1 twice"),
    "33 lanes": (lambda: with_warps(replace(warp(), lanes=[*warp().lanes] * 2)), "64 lanes of"),
    "a thread outside of the block": (lambda: with_lane(thread=(64, 0, 0)), "of a block"),
    "a thread that is no such lane": (lambda: with_lane(thread=(1, 0, 0)), "as its lane 0"),
    "lanes of two warps": (lambda: with_lane(thread=(32, 0, 0)), "threads of several warps"),
    "lanes of an unknown driver": (
        lambda: with_section(".cudbg.lntbl", data=bytes(40), entry=40),
        "rows of 40 bytes, shorter",
    ),
}


def bytes_with(data: bytes, at: int, form: str, value: int) -> bytes:
    """A file with another value in the header of its first section."""
    image = bytearray(data)
    (start,) = struct.unpack_from("<Q", image, 40)
    struct.pack_into(f"<{form}", image, start + at, value)
    return bytes(image)


def with_lane_word(at: int, value: int) -> bytes:
    """The small dump with another word in the row of its first lane."""
    data = bytearray(small().sections()[number(".cudbg.lntbl")].data)
    struct.pack_into("<I", data, at, value)
    return with_section(".cudbg.lntbl", data=bytes(data))


def circle() -> bytes:
    """The small dump, in which modules are below contexts, and contexts below modules."""
    contexts = with_header(".cudbg.ctxtbl", *_LINK, number(".cudbg.modtbl"))
    return with_header(".cudbg.modtbl", *_LINK, number(".cudbg.ctxtbl"), contexts)


def longer_rows() -> bytes:
    """The small dump with 24 bytes more in each row of each table."""

    def change(sections: list[Section]) -> None:
        for n, s in enumerate(sections):
            if s.entry > 8:
                rows = [s.data[at : at + s.entry] for at in range(0, len(s.data), s.entry)]
                data = b"".join(row + b"\xee" * 24 for row in rows)
                sections[n] = replace(s, data=data, entry=s.entry + 24)

    return small().to_bytes(change)


def with_device_rows(count: int) -> bytes:
    """The small dump on the first of several devices; the others have no tables."""
    row = small().sections()[number(".cudbg.devtbl")].data
    return with_section(".cudbg.devtbl", data=row * count)


def lanes(dump: CoreDump) -> list[int]:
    """How many lanes each warp has."""
    return [len(w.lanes) for c in dump.ctas for w in c.warps]


def renamed(name: str) -> bytes:
    """The small dump, all of whose sections have this name."""

    def change(sections: list[Section]) -> None:
        sections[:] = [replace(s, name=name) for s in sections]

    return small().to_bytes(change)


#: what is strange, the file, what is looked at, and what it is
READ: dict[str, tuple[Make, Callable[[CoreDump], object], object]] = {
    "as it should be": (lambda: small().to_bytes(), lanes, [32] * 4),
    "compressed": (packed, lanes, [32] * 4),
    "names of sections in the empty section": (
        lambda: patched(*_NAMES, 0),
        lanes,
        [32] * 4,
    ),
    "names of sections in no section": (lambda: patched(*_NAMES, 0xFF00), lanes, [32] * 4),
    "names that are paths": (lambda: renamed("../../../etc/passwd"), lanes, [32] * 4),
    "names that are no ASCII": (lambda: renamed("\u202e\x1b[31m"), lanes, [32] * 4),
    "names of 100,000 characters": (lambda: renamed("x" * 100_000), lanes, [32] * 4),
    "no strings": (lambda: without(".strtab"), lambda d: d.devices[0].name, ""),
    "a name with escapes": (
        lambda: on_device(name="\x1b[31mGPU"),
        lambda d: d.devices[0].name,
        "",
    ),
    "an older driver (r525)": (
        lambda: replace(small(), release=(525, 60)).to_bytes(),
        lambda d: (
            d.driver,
            lanes(d),
            d.ctas[0].warps[0].exited,
            d.ctas[0].warps[0].lanes[0].state,
        ),
        (None, [32] * 4, None, None),
    ),
    "the first driver (r346)": (
        lambda: replace(small(), release=(346, 0)).to_bytes(),
        lambda d: (lanes(d), d.ctas[0].warps[0].uniform_register(0), d.grids[0].cluster),
        ([32] * 4, None, (0, 0, 0)),
    ),
    "a driver to come, with longer rows": (longer_rows, lanes, [32] * 4),
    "no parameters": (lambda: with_grid(params=None), lambda d: d.grids[0].params, None),
    "no shared memory": (lambda: with_cta(shared=None), lambda d: d.ctas[0].shared, None),
    "no registers": (
        lambda: without(".cudbg.regs"),
        lambda d: d.ctas[0].warps[0].register(0, 1),
        None,
    ),
    "registers of three bytes": (
        lambda: with_section(REGISTERS, data=b"abc"),
        lambda d: d.ctas[0].warps[0].register(0, 0),
        None,
    ),
    "predicates of five bytes": (
        lambda: with_section(".cudbg.pred", data=b"\0\1\0\0\1"),
        lambda d: d.ctas[0].warps[0].predicates(0),
        (True,),
    ),
    "no SMs": (lambda: without(".cudbg.smtbl"), lambda d: d.ctas, ()),
    "no CTAs": (lambda: on_device(ctas=[]), lambda d: (d.ctas, len(d.grids)), ((), 1)),
    "no grids and no CTAs": (lambda: on_device(ctas=[], grids=[]), lambda d: d.grids, ()),
    "no images": (lambda: without(".cudbg.relfimg"), lambda d: d.image_of(d.grids[0]), None),
    "an image that is no ELF": (
        lambda: with_section(".cudbg.relfimg", data=b"MZ"),
        lambda d: d.image_of(d.grids[0]),
        None,
    ),
    "a table of modules whose link is itself": (
        lambda: with_header(".cudbg.modtbl", *_LINK, number(".cudbg.modtbl")),
        lambda d: d.images,
        (),
    ),
    "tables of modules and contexts whose links are a circle": (circle, lambda d: d.images, ()),
    "a table of lanes whose link is itself": (
        lambda: with_header(".cudbg.lntbl", *_LINK, number(".cudbg.lntbl")),
        lanes,
        [32] * 3,
    ),
    "a warp without lanes": (lambda: with_warps(warp(0, ()), warp(1)), lanes, [32] * 3),
    "a warp whose lanes have all ended": (
        lambda: with_warps(replace(warp(0), valid=0), warp(1)),
        lanes,
        [32] * 3,
    ),
    "lanes that have ended have rows": (
        lambda: with_warps(replace(warp(0), valid=0xF0), warp(1)),
        lanes,
        [4, 32, 32, 32],
    ),
    "a warp of some lanes": (lambda: with_warps(warp(0, (3, 5)), warp(1)), lanes, [2, 32, 32, 32]),
    "a grid of 2^31 - 1 by 65,535 by 65,535": (
        lambda: with_grid(grid=((1 << 31) - 1, 65535, 65535)),
        lambda d: d.absent(d.grids[0]).unknown,
        ((1 << 31) - 1) * 65535 * 65535 - 2,
    ),
    "a grid of (2^32 - 1)^3": (
        lambda: with_grid(grid=(0xFFFFFFFF,) * 3),
        lambda d: [c.number for c in d.ctas],
        [0, 1],
    ),
    "a cluster of 0 CTAs": (lambda: with_cta(cluster_size=(2, 0, 1)), lambda d: d.ctas[0].rank, 0),
    "PCs at 2^64 - 1": (
        lambda: with_lane(pc=(1 << 64) - 1),
        lambda d: d.ctas[0].warps[0].lanes[0].pc,
        (1 << 64) - 1,
    ),
    "states that are not known": (
        lambda: with_lane(state=99),
        lambda d: d.ctas[0].warps[0].lanes[0].state,
        "state 99",
    ),
    "a status that is not known": (
        lambda: with_grid(status=77),
        lambda d: d.grids[0].status,
        "status 77",
    ),
    "global memory at the end of all": (
        lambda: with_header(".cudbg.global", *_ADDRESS, (1 << 64) - 8),
        lambda d: (d.at((1 << 64) - 8, 8), d.at((1 << 64) - 4, 8), d.at(0, 8)),
        (bytes(range(8)), bytes(range(4, 12)), None),
    ),
    "pieces of memory that overlap": (
        lambda: replace(
            small(), memory=[Memory(100, b"abcdef"), Memory(102, b"XY"), Memory(102, b"")]
        ).to_bytes(),
        lambda d: (d.at(102, 2), d.at(102, 4), d.at(102, 5), d.at(102, 0), d.at(107, 1)),
        (b"cd", b"cdef", None, b"", None),
    ),
    "a device without tables": (
        lambda: with_device_rows(8),
        lambda d: (len(d.devices), len(d.grids), lanes(d)),
        (8, 1, [32] * 4),
    ),
    "66,000 sections": (
        lambda: with_more(*[Section("", 99, b"")] * 66_000),
        lambda d: (lanes(d), d.devices[0].name),
        ([32] * 4, "NVIDIA H200"),
    ),
    "sections of other types": (
        lambda: with_more(*(Section("", n, bytes(8), n, n, 8) for n in range(24, 200))),
        lanes,
        [32] * 4,
    ),
    "shared memory in the place of code": (
        lambda: with_header(SHARED, *_OFFSET, 0),
        lambda d: d.ctas[0].shared[:4] if d.ctas[0].shared else None,
        b"\x7fELF",
    ),
    "two devices": (
        lambda: Dump([*small().devices, *small().devices]).to_bytes(),
        lambda d: [(c.grid.device, c.index[0]) for c in d.ctas],
        [(0, 0), (0, 1), (1, 0), (1, 1)],
    ),
}


# ---------------------------------------------------------------------- images

_ONE = struct.Struct("<IIQQQQIIQQ")
_TEXT = ".text._Z4ringPKfPfii"


def with_image(image: bytes) -> bytes:
    """The small dump with another cubin."""
    return on_device(contexts=[[Module(image)]])


def header_of_image(at: int, form: str, value: int) -> bytes:
    """The small dump; in the header of its cubin stands something else."""
    image = bytearray(code())
    struct.pack_into(f"<{form}", image, at, value)
    return with_image(bytes(image))


def section_of_image(name: str) -> tuple[int, int, int]:
    """Where the header of a section of the cubin lies, and its contents with their size."""
    (start,) = struct.unpack_from("<Q", code(), 40)
    count, strings = struct.unpack_from("<HH", code(), 60)
    headers = [_ONE.unpack_from(code(), start + 64 * n) for n in range(count)]
    for n, header in enumerate(headers):
        named = code()[headers[strings][4] + header[0] :].partition(b"\0")[0]
        if named == name.encode():
            return start + 64 * n, header[4], header[5]
    raise KeyError(name)


def section_of_image_with(name: str, at: int, form: str, value: int) -> bytes:
    """The small dump; in the header of a section of its cubin stands something else."""
    return header_of_image(section_of_image(name)[0] + at, form, value)


def filled(name: str, content: bytes) -> bytes:
    """The small dump; a section of its cubin is full of this."""
    _, start, size = section_of_image(name)
    image = bytearray(code())
    image[start : start + size] = (content * (size // len(content) + 1))[:size]
    return with_image(bytes(image))


def replaced(old: bytes, new: bytes) -> bytes:
    """The small dump; in its cubin stands another text of this length."""
    assert len(old) == len(new)
    return with_image(code().replace(old, new))


def markup() -> bytes:
    """The small dump; its kernel and its file are called as what a page would run."""
    image = code().replace(b"_Z4ringPKfPfii", b"<img/src=x/on>").replace(b"ring.cu", b"<b>\x07.cu")
    return with_image(image)


#: what is wrong in a cubin, the dump, and what the message says
REFUSED_IMAGES: dict[str, tuple[Make, str]] = {
    "its header only": (lambda: with_image(code()[:64]), "section headers of 64 bytes do not fit"),
    "cut in half": (lambda: with_image(code()[: len(code()) // 2]), "do not fit"),
    "zeros": (lambda: with_image(b"\x7fELF" + bytes(1000)), "this is not a cubin"),
    "code of a CPU": (lambda: header_of_image(18, "H", 62), "this is not a cubin"),
    "section headers at 2^63": (lambda: header_of_image(*_START, HUGE), "do not fit"),
    "65,535 sections": (lambda: header_of_image(*_COUNT, 65535), "do not fit"),
    "names in no section": (lambda: header_of_image(*_NAMES, 65535), "section 65535 of 23"),
    "section headers of 0 bytes": (lambda: header_of_image(*_ROW, 0), "of 0 bytes do not fit"),
    "2^32 symbols": (
        lambda: section_of_image_with(".symtab", *_SIZE, 24 << 32),
        ".symtab lies behind its end",
    ),
    "symbols at 2^63": (
        lambda: section_of_image_with(".symtab", *_OFFSET, HUGE),
        ".symtab lies behind its end",
    ),
    "names of symbols in no section": (
        lambda: section_of_image_with(".symtab", *_LINK, 0xFFFFFFFF),
        "the names of symbols are section 4294967295",
    ),
    "names without an end": (lambda: filled(".strtab", b"\xff"), "has no name of at most"),
    "code in another place": (lambda: section_of_image_with(_TEXT, *_ADDRESS, 0), "does not lie"),
    "code of 2^40 bytes": (lambda: section_of_image_with(_TEXT, *_SIZE, 1 << 40), "cannot read it"),
    "code that is zeros": (lambda: filled(_TEXT, b"\0"), "cannot read it"),
    "an unknown architecture": (lambda: header_of_image(48, "I", 0), "cannot read it"),
    "a kernel with escapes": (
        lambda: replaced(b"_Z4ringPKfPfii", b"\x1b]0;owned\x07...."),
        "\\x1b]0;owned\\x07....",
    ),
    "attributes that are none": (
        lambda: filled(".nv.info._Z4ringPKfPfii", b"\4\x34\xf0\0"),
        "cannot read it",
    ),
}

#: what is strange in a cubin, the dump, and what is said
READ_IMAGES: dict[str, tuple[Make, str]] = {
    "no sections": (lambda: header_of_image(*_COUNT, 0), "code of a kernel is not in the dump"),
    "no symbols": (lambda: filled(".symtab", b"\0"), "code of a kernel is not in the dump"),
    "lines that are none": (lambda: filled(".debug_line", b"\xff"), "at +0x10 S2R"),
    "lines of the PTX that are none": (
        lambda: filled(".nv_debug_line_sass", b"\xff"),
        "at ring.cu:15",
    ),
    "PTX that is none": (lambda: filled(".nv_debug_ptx_txt", b"\x1b[31m"), "at ring.cu:15"),
    "PTX of brackets": (lambda: filled(".nv_debug_ptx_txt", b"("), "at ring.cu:15"),
    "a file with escapes": (lambda: replaced(b"ring.cu", b"\x1b[31mXY"), "at \\x1b[31mXY:15"),
    "a file that is a path": (lambda: replaced(b"ring.cu", b"../../x"), "at x:15"),
    "PCs in no function": (
        lambda: with_lane(pc=ENTRY - 4096),
        f"at {ENTRY - 4096:#x}, outside of the kernel",
    ),
    "PCs between instructions": (
        lambda: with_lane(pc=ENTRY + 17),
        "at +0x11, which is no instruction",
    ),
}


# -------------------------------------------------------------------- hangs of which a part lacks


@cache
def hang() -> Dump:
    """The dump of the ring, to be changed."""
    return copy_of(CoreDump(DUMPS / "ring.nvcudmp.gz"))


def hang_of(**changes: Any) -> bytes:
    """The ring on another device."""
    dump = hang()
    return replace(dump, devices=[replace(dump.devices[0], **changes)]).to_bytes()


def hang_with_grid(**changes: Any) -> bytes:
    """The ring with another grid."""
    return hang_of(grids=[replace(hang().devices[0].grids[0], **changes)])


def hang_with_ctas(**changes: Any) -> bytes:
    """The ring with other CTAs."""
    return hang_of(ctas=[replace(cta, **changes) for cta in hang().devices[0].ctas])


def hang_with_warps(of_warp: Callable[[Warp], Warp]) -> bytes:
    """The ring with other warps."""
    ctas = hang().devices[0].ctas
    return hang_of(ctas=[replace(c, warps=[of_warp(w) for w in c.warps]) for c in ctas])


def hang_with_lanes(**changes: Any) -> bytes:
    """The ring with other lanes."""
    return hang_with_warps(
        lambda w: replace(w, lanes=[replace(lane, **changes) for lane in w.lanes])
    )


_FIRST = "waits     warps 0-3 wait for mbarrier 0xc08, parity 1, in CTAs 0-2"

#: what lacks, the dump, options, and what is said
LACKING: dict[str, tuple[Make, Sequence[str], Sequence[str]]] = {
    "nothing": (
        lambda: hang().to_bytes(),
        ["--no-check"],
        [_FIRST, "mbarrier 0xc08 is in a phase of parity 1: 1 of 1 arrivals pending"],
    ),
    "parameters": (
        lambda: hang_with_grid(params=None),
        [],
        [_FIRST, "the bytes of the kernel's parameters are not in the dump"],
    ),
    "most of the parameters": (
        lambda: hang_with_grid(params=b"\1\2"),
        [],
        [_FIRST, "the parameters take 24 bytes, and the dump has 2 of them"],
    ),
    "a number of CTAs that can be": (
        lambda: hang_with_grid(grid=((1 << 31) - 1, 65535, 65535)),
        [],
        [_FIRST, "9,223,090,559,730,712,572 not started or ended", "the kernel cannot be checked"],
    ),
    "CTAs of half of a cluster": (
        lambda: hang_with_grid(cluster=(2, 1, 1)),
        [],
        [_FIRST, "x = 3 is not a multiple of the cluster's 2"],
    ),
    "a number of registers that can be": (
        lambda: hang_with_grid(registers=0xFFFFFFFF),
        [],
        [_FIRST, "4294967295 registers per thread"],
    ),
    "shared memory": (
        lambda: hang_with_ctas(shared=None, shared_size=3200),
        ["--no-check"],
        [_FIRST, "its state is not known", "the dump has no shared memory"],
    ),
    "most of the shared memory": (
        lambda: hang_with_ctas(shared=bytes(100)),
        ["--no-check"],
        [_FIRST, "it lies behind the shared memory of 100 bytes"],
    ),
    "the contents of shared memory": (
        lambda: hang_with_ctas(shared=b"\xff" * 3200),
        [],
        [
            "its word is 0xffffffffffffffff: it is not an mbarrier",
            "check finds a deadlock, of which that of the dump differs",
            "mbarrier 0xc08 is none, but 0xffffffffffffffff: none was initialised there",
        ],
    ),
    "registers": (
        lambda: hang_with_lanes(registers=()),
        [],
        [
            "warps 0-3 wait for an mbarrier that cannot be read",
            "check finds this hang, as far as the dump shows it: in all 3 CTAs of it the same "
            "warps wait at the same instructions as in its deadlock; for which barriers and "
            "parities some of them wait is not in the dump",
        ],
    ),
    "registers with sense": (
        lambda: hang_with_lanes(registers=(0xFFFFFFFF,) * 30),
        [],
        ["check finds a deadlock, of which that of the dump differs", "CTA 255"],
    ),
    "uniform registers": (
        lambda: hang_with_warps(lambda w: replace(w, uniform_registers=())),
        ["--no-check"],
        [_FIRST],
    ),
    "a place": (lambda: hang_with_lanes(pc=0), [], ["at 0x0, outside of the kernel"]),
    "warps": (lambda: hang_with_ctas(warps=[]), [], ["3 of 3 CTAs resident"]),
    "the image": (lambda: hang_of(contexts=[[]]), [], ["the code of a kernel is not in the dump"]),
    "a known architecture": (
        lambda: hang_of(arch=(8, 0)),
        ["--no-check"],
        [_FIRST, "the layout of mbarriers on sm_80 is not known"],
    ),
    "evidence of an architecture": (
        lambda: hang_of(arch=(10, 0)),
        ["--no-check"],
        [_FIRST, "how mbarriers lie in memory on sm_100 is inferred"],
    ),
    "what newer drivers write": (
        lambda: replace(hang(), release=(525, 60)).to_bytes(),
        ["--no-check"],
        [_FIRST],
    ),
}
