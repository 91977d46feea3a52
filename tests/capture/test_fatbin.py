"""PTX out of fatbins: how it is compressed, and for which target it is."""

from __future__ import annotations

import ctypes
import time
from ctypes.util import find_library
from pathlib import Path
from struct import pack

import pytest

from tests.cubin.compiled import image as compiled
from tilesim.capture.folder import Folder
from tilesim.capture.modules import Loaded
from tilesim.cubin import fatbin as module
from tilesim.cubin.fatbin import FatbinError, chosen, image, targets, texts, texts_of_program
from tilesim.ptx.launch import Launch

TEXT = ".version 9.0\n.target sm_90a\n// " + "abcabcabc" * 40 + "\n"


def entry(body: bytes, flags: int = 0, full: int = 0, kind: int = 1) -> bytes:
    packed = len(body) if flags else 0
    padded = body.ljust(-(-len(body) // 8) * 8, b"\0")
    head = pack("<HHIQI20xQ8xQ", kind, 0x101, 64, len(padded), packed, flags, full)
    return head + padded


def fatbin(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def lz4(data: bytes) -> bytes:
    """A block of literals, a copy of what lies 3 bytes back, and literals."""
    at = data.index(b"abcabc")
    head, length = data[: at + 3], 355

    def extended(count: int) -> bytes:
        return b"\xff" * (count // 255) + bytes([count % 255])

    tail = data[at + 3 + length :]
    block = bytes([0xFF]) + extended(len(head) - 15) + head + pack("<H", 3)
    return block + extended(length - 4 - 15) + bytes([len(tail) << 4]) + tail


def zstd(data: bytes) -> bytes:
    library = ctypes.CDLL(find_library("zstd"))
    library.ZSTD_compress.restype = ctypes.c_size_t
    room = ctypes.create_string_buffer(len(data) + 512)
    size = library.ZSTD_compress(
        room, ctypes.c_size_t(len(room)), data, ctypes.c_size_t(len(data)), 3
    )
    return room.raw[:size]


def test_ptx_that_is_not_compressed() -> None:
    data = fatbin(entry(b"\x7fELF", kind=2), entry(TEXT.encode() + b"\0"), entry(b"// other\0"))
    assert list(texts(data)) == [TEXT, "// other"]
    assert list(texts(data + fatbin(entry(b"// linked\0"))))[2] == "// linked"


def test_ptx_in_lz4() -> None:
    packed = lz4(TEXT.encode())
    assert len(packed) < 100
    assert list(texts(fatbin(entry(packed, 0x2011, len(TEXT))))) == [TEXT]
    with pytest.raises(FatbinError, match="damaged"):
        list(texts(fatbin(entry(packed[:20], 0x2011, len(TEXT)))))


@pytest.mark.skipif(find_library("zstd") is None, reason="there is no libzstd")
def test_ptx_in_zstd() -> None:
    packed = zstd(TEXT.encode())
    assert list(texts(fatbin(entry(packed, 0x8011, len(TEXT))))) == [TEXT]
    with pytest.raises(FatbinError, match="damaged"):
        list(texts(fatbin(entry(packed[:20], 0x8011, len(TEXT)))))


def test_without_libzstd_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_libzstd", lambda: None)
    with pytest.raises(FatbinError, match="--compress-mode=none"):
        list(texts(fatbin(entry(b"x", 0x8011, 10))))


def test_images_are_found_in_the_programs_memory() -> None:
    data = fatbin(entry(TEXT.encode() + b"\0"))
    memory = pack("<IIQQ", 0x466243B1, 1, 0x2000, 0).ljust(0x1000, b"\0") + data
    text = b"// PTX\0"
    pages = {0x1000: memory, 0x5FFC: text}

    def read(address: int, size: int) -> bytes:
        base = max(b for b in pages if b <= address)
        if base == 0x5FFC:
            assert address + size <= 0x6000 or address >= 0x6000  # one page at a time
        return pages[base][address - base : address - base + size]

    assert image(read, 0x1000) == data
    assert image(read, 0x5FFC) == b"// PTX"


def ptx(target: str) -> str:
    return f".version 9.0\n.target {target}, debug\n"


@pytest.mark.parametrize(
    ("has", "target", "takes"),
    [
        (("sm_80", "sm_90", "sm_90a"), "sm_90a", "sm_90a"),
        (("sm_80", "sm_90"), "sm_90a", "sm_90"),
        (("sm_90a",), "sm_100a", None),
        (("sm_90",), "sm_100a", "sm_90"),
        (("sm_100",), "sm_90a", None),
        (("sm_100f",), "sm_103a", "sm_100f"),
        (("sm_100a", "sm_100f", "sm_90"), "sm_103a", "sm_100f"),
        (("sm_90", "sm_120f"), "sm_103a", "sm_90"),
    ],
)
def test_the_text_for_a_target(has: tuple[str, ...], target: str, takes: str | None) -> None:
    found = [ptx(name) for name in has]
    assert targets(found) == has
    assert chosen(found, target) == (None if takes is None else ptx(takes))


def test_a_module_without_ptx_says_how_to_get_it() -> None:
    with pytest.raises(FatbinError, match="compute_90a,code="):
        _ = Loaded(fatbin(entry(b"\x7fELF", kind=2)), "sm_90a").text
    with pytest.raises(FatbinError, match="sm_100a and none that runs on sm_90a"):
        _ = Loaded(fatbin(entry(ptx("sm_100a").encode())), "sm_90a").text


def program(*sections: tuple[int, bytes]) -> bytes:
    """An ELF program with sections of fatbins: where each begins, and its bytes."""
    names = b".nv_fatbin\0"
    end = max([64, *(at + len(body) for at, body in sections)])
    rows = [(0, 3, end, len(names)), *((0, 1, at, len(body)) for at, body in sections)]
    data = bytearray(end) + names
    for at, body in sections:
        data[at : at + len(body)] = body
    data[:64] = pack(
        "<16s24xQ10xHHH", b"\x7fELF\x02\x01", len(data), 64, len(rows), 0,
    )  # fmt: skip
    return bytes(data) + b"".join(pack("<II16xQQ24x", *row) for row in rows)


def test_ptx_of_a_program() -> None:
    first, second = fatbin(entry(TEXT.encode())), fatbin(entry(b"// other"))
    data = program((64, first), (64 + len(first), second))
    assert list(texts_of_program(data)) == [TEXT, "// other"]


def test_sections_that_overlap_are_refused() -> None:
    """Else a file with 65,535 headers of one section is read as often."""
    first = fatbin(entry(TEXT.encode()))
    with pytest.raises(FatbinError, match="fatbins overlap"):
        list(texts_of_program(program((64, first), (64, first))))


@pytest.mark.parametrize("size", [-1, 1 << 40])
def test_entries_beyond_their_fatbin_are_refused(size: int) -> None:
    """A text that was cut is not taken for a shorter one."""
    whole = entry(TEXT.encode())
    length = len(whole) - 64
    longer = whole[:8] + pack("<Q", length + 8 if size < 0 else size) + whole[16:]
    with pytest.raises(FatbinError, match="does not fit"):
        list(texts(fatbin(longer)))
    with pytest.raises(FatbinError, match="it was cut"):
        list(texts(fatbin(whole)[:-1]))
    with pytest.raises(FatbinError, match="does not fit"):
        list(texts(fatbin(entry(TEXT.encode(), kind=2), whole[:16] + b"\xff" * 4 + whole[20:])))


@pytest.mark.parametrize("back", [0, 4])
def test_lz4_copies_from_nowhere_are_refused(back: int) -> None:
    block = b"\x30abc" + pack("<H", back) + b"\x10d"
    with pytest.raises(FatbinError, match="damaged"):
        list(texts(fatbin(entry(block, 0x2011, 8))))
    fine = b"\x30abc" + pack("<H", 2) + b"\x10d"
    assert list(texts(fatbin(entry(fine, 0x2011, 8)))) == ["abcbcbcd"]


def test_what_grows_when_decompressed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = b"\x1fa\x01\0" + b"\xff" * 40_000 + b"\0\x10b"
    full = 1 + 15 + 255 * 40_000 + 4 + 1
    begin = time.process_time()
    (text,) = texts(fatbin(entry(bomb, 0x2011, full)))
    assert len(text) == full
    assert time.process_time() - begin < 1  # byte by byte it takes three
    monkeypatch.setattr(module, "MOST_TOGETHER", 2 * full)
    with pytest.raises(FatbinError, match="more than"):
        next(texts(fatbin(*[entry(bomb, 0x2011, full)] * 3)))  # before the first is decompressed
    one = fatbin(entry(bomb, 0x2011, full))
    assert len(list(texts_of_program(program((64, one), (1 << 20, one))))) == 2
    with pytest.raises(FatbinError, match="more than"):
        next(texts_of_program(program((64, one), (1 << 20, one), (1 << 21, one))))
    monkeypatch.setattr(module, "MOST_ENTRIES", 3)
    with pytest.raises(FatbinError, match="more than 3 entries"):
        next(texts(fatbin(*[entry(b"")] * 4)))
    with pytest.raises(FatbinError, match="larger than 256 MiB"):
        list(texts(fatbin(entry(bomb, 0x2011, 1 << 62))))


@pytest.mark.skipif(find_library("zstd") is None, reason="there is no libzstd")
@pytest.mark.parametrize("size", [len(TEXT) - 1, len(TEXT) + 1, 1 << 28])
def test_zstd_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(FatbinError, match="damaged"):
        list(texts(fatbin(entry(zstd(TEXT.encode()), 0x8011, size))))


def test_wrappers_of_wrappers_and_huge_modules_are_refused() -> None:
    own = pack("<IIQQ", 0x466243B1, 1, 0x1000, 0)
    with pytest.raises(FatbinError, match="wrapper has no fatbin"):
        image(lambda address, size: own[:size], 0x1000)
    huge = pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 60)
    with pytest.raises(FatbinError, match=f"{1 << 60} bytes"):
        image(lambda address, size: huge[:size], 0x1000)


def test_text_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_UNPACKED", 1 << 14)
    with pytest.raises(FatbinError, match="the PTX has more than"):
        image(lambda address, size: b"a" * size, 0x1000)


def test_targets_in_hostile_texts_are_found_in_time() -> None:
    begin = time.process_time()
    assert targets(["\n" * 100_000 + "x", f".target sm_{'9' * 5000}"]) == ()
    assert time.process_time() - begin < 1


def test_machine_code_with_lines_is_kept_beside_the_ptx(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void k(int *p) { *p = 1; }'
    with_lines, without = compiled(source), compiled(source, lines=False)
    assert with_lines.ptx is not None
    text = entry(with_lines.ptx.encode())
    cubins = entry(without.data, kind=2), entry(with_lines.data, kind=2)
    loaded = Loaded(fatbin(text, *cubins), "sm_90a")
    assert loaded.cubin("k") == with_lines.data
    assert loaded.cubin("other") == Loaded(fatbin(text, cubins[0]), "sm_90a").cubin("k") == b""
    assert Loaded(fatbin(text, entry(b"\x7fELF", kind=2)), "sm_90a").cubin("k") == b""
    folder, launch = Folder(tmp_path), Launch("k", (1, 1, 1))
    assert folder.write(loaded.text, launch, loaded.cubin("k")) == "k"
    assert folder.write(loaded.text, launch) == "k_1"
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "k.cubin", "k.json", "k.ptx", "k_1.json", "k_1.ptx",
    ]  # fmt: skip
    assert (tmp_path / "k.cubin").read_bytes() == with_lines.data
