"""Which PTX is taken for a kernel of a dump, and how sure that is."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from tests.capture.test_fatbin import entry, fatbin
from tilesim.autopsy.core_dump import CoreDump
from tilesim.autopsy.errors import DumpError
from tilesim.autopsy.find_ptx import FoundPtx, Loaded, Missing, find_ptx, loaded, plain
from tilesim.autopsy.ptx_lines import with_positions
from tilesim.cubin.disassembly import function_at
from tilesim.cubin.fatbin import FatbinError, cubins_of_program, texts_of_program
from tilesim.cubin.image import Image
from tilesim.records import replace

RING = Path(__file__).parent / "dumps" / "ring.nvcudmp.gz"
NAME = "_Z4ringPKfPfii"


@pytest.fixture(scope="module")
def kernel() -> Loaded:
    """The kernel of the ring's dump."""
    dump = CoreDump(RING)
    grid, own = dump.grids[0], dump.image_of(dump.grids[0])
    assert own is not None
    image = Image(own.data)
    symbol = image.symbol_at(grid.entry)
    assert symbol is not None
    return loaded(dump, grid, image, image.info(symbol))


@pytest.fixture(scope="module")
def text(kernel: Loaded) -> str:
    """Its PTX."""
    assert kernel.image.ptx is not None
    return kernel.image.ptx


@pytest.fixture(scope="module")
def bare(kernel: Loaded) -> Loaded:
    """The same, compiled without -lineinfo: nothing is embedded."""
    image = Image(kernel.image.data.replace(b".nv_debug_ptx_txt", b".nv_debug_ptx_no_"))
    assert image.ptx is None
    return replace(kernel, image=image, unrelocated=None)


def found(one: FoundPtx | Missing) -> FoundPtx:
    assert isinstance(one, FoundPtx), one
    return one


def test_a_cubin_that_embeds_its_ptx_needs_no_other(kernel: Loaded, text: str) -> None:
    one = found(find_ptx(kernel, environment={}))
    assert (one.text, one.file, one.source) == (text, "ring.ptx", "embedded in the dump")
    assert one.certain
    assert one.differs == ()
    assert one.entry.name == NAME


def test_the_same_text_with_positions_and_comments_is_certain(
    kernel: Loaded, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "k.ptx"
    debug = ".section .debug_str\n{\n$L__info:\n.b8 114\n.b8 0\n}\n"
    written = text.partition(".section")[0].replace("bar.sync", "/* c */ bar.sync")
    path.write_text(f'{written}.file 1 "/a/ring.cu"\n{debug}// of nvcc')
    one = found(find_ptx(kernel, path, environment={}))
    assert (one.certain, one.file) == (True, str(path))
    assert one.evidence == "the cubin in the dump embeds the same text"
    # the cubin's tables count the lines of its own text
    longer = text.replace("bar.sync", ".loc 1 10 5\nbar.sync", 1)
    path.write_text(longer)
    one = found(find_ptx(kernel, path, environment={}))
    assert (one.certain, one.file, one.text) == (True, "ring.ptx", text)
    path.write_text(text.replace("mbarrier.init.shared::cta.b64 [%r39], %r44;", "", 1))
    other = found(find_ptx(kernel, path, environment={}))
    assert not other.certain
    assert other.evidence == "the cubin in the dump embeds another text"


def test_what_contradicts_the_cubin_is_said(kernel: Loaded, text: str, tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(text.replace("buf[2048]", "buf[4096]").replace("sm_90a", "sm_90"))
    one = found(find_ptx(kernel, path, environment={}))
    assert one.differs == (
        "its .target is sm_90, the machine code is for sm_90a",
        "its variables take 4224 bytes of shared memory, in the dump 2080",
    )


def test_ptx_with_other_parameters_is_of_another_kernel(
    kernel: Loaded, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(text.replace(f".param .u32 {NAME}_param_3", f".param .u64 {NAME}_param_3"))
    one = find_ptx(kernel, path, environment={})
    assert isinstance(one, Missing)
    assert one.why.endswith("its parameters have 8, 8, 4, 8 bytes, those in the dump 8, 8, 4, 4")


def test_a_file_that_is_no_ptx_or_of_other_kernels_is_an_error(
    kernel: Loaded, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "k"
    path.write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(DumpError, match="there is no PTX in it: compile with"):
        find_ptx(kernel, path, environment={})
    path.write_text(text.replace(NAME, "_Z5otherPKfPfii"))
    with pytest.raises(DumpError, match="there is no PTX in it of the kernel ring"):
        find_ptx(kernel, path, environment={})
    with pytest.raises(DumpError, match="cannot be read: No such file"):
        find_ptx(kernel, tmp_path / "none", environment={})


def test_in_a_folder_the_text_that_is_embedded_is_taken(
    kernel: Loaded, text: str, tmp_path: Path
) -> None:
    other = text.replace("mov.u32 	%r46, 4;", "mov.u32 	%r46, 5;")
    (tmp_path / "ring.ptx").write_text(other)
    (tmp_path / "ring_1.ptx").write_text(text)
    (tmp_path / "ring_2.ptx").write_text(other + "\n")
    (tmp_path / "noise.ptx").write_text("no ptx")
    one = found(find_ptx(kernel, tmp_path, environment={}))
    assert (one.certain, Path(one.file).name) == (True, "ring_1.ptx")


def cached(folder: Path, digest: str, text: str, cubin: bytes | None) -> None:
    (folder / digest).mkdir()
    (folder / digest / f"{NAME}.ptx").write_text(text)
    if cubin is not None:
        (folder / digest / f"{NAME}.cubin").write_bytes(cubin)


def test_in_triton_s_cache_the_cubin_beside_it_decides(
    kernel: Loaded, bare: Loaded, text: str, tmp_path: Path
) -> None:
    data = kernel.image.data
    section = kernel.image.section(f".text.{NAME}")
    assert section is not None
    changed = bytearray(data)
    changed[section.offset + 64] ^= 1
    cached(tmp_path, "aa", text.replace("[2048]", "[2050]"), bytes(changed))
    cached(tmp_path, "bb", text, data)
    cached(tmp_path, "cc", text.replace("[2048]", "[2049]"), b"damaged")
    one = found(find_ptx(bare, environment={"TRITON_CACHE_DIR": str(tmp_path)}))
    assert one.certain
    assert one.evidence == "the cubin beside it has the machine code of the dump"
    assert one.source == "in Triton's cache"
    assert Path(one.file).parent.name == "bb"


def test_without_a_cubin_a_text_of_that_name_is_not_verified(
    bare: Loaded, text: str, tmp_path: Path
) -> None:
    home = tmp_path / ".triton" / "cache"
    home.mkdir(parents=True)
    assert isinstance(find_ptx(bare, environment={"HOME": str(tmp_path)}), Missing)
    cached(home, "aa", text, None)
    one = found(find_ptx(bare, environment={"HOME": str(tmp_path)}))
    assert not one.certain
    assert one.evidence == "by its name, not verified: the dump has nothing to compare it with"
    cached(home, "bb", text.replace("[2048]", "[8192]"), None)
    several = found(find_ptx(bare, environment={"HOME": str(tmp_path)}))
    assert several.text == text  # the other one has another size of shared memory
    assert several.evidence.endswith(
        "2 texts there have a kernel of this name, the newest that fits best is taken"
    )


def test_a_text_beside_another_cubin_is_of_other_constants(
    kernel: Loaded, bare: Loaded, text: str, tmp_path: Path
) -> None:
    section = kernel.image.section(f".text.{NAME}")
    assert section is not None
    changed = bytearray(kernel.image.data)
    changed[section.offset + 64] ^= 1
    cached(tmp_path, "aa", text, None)
    newer = text.replace("mov.u32 	%r46, 4;", "mov.u32 	%r46, 5;")
    cached(tmp_path, "bb", newer, bytes(changed))
    both = found(find_ptx(bare, environment={"TRITON_CACHE_DIR": str(tmp_path)}))
    assert (both.text, both.certain) == (text, False)
    (tmp_path / "aa" / f"{NAME}.ptx").unlink()
    alone = found(find_ptx(bare, environment={"TRITON_CACHE_DIR": str(tmp_path)}))
    assert (alone.text, alone.certain) == (newer, False)
    assert alone.evidence == (
        "by its name only: the cubin beside it has other machine code than the dump"
    )


def test_the_cubin_beside_a_file_decides_too(
    kernel: Loaded, bare: Loaded, text: str, tmp_path: Path
) -> None:
    cached(tmp_path, "aa", text, kernel.image.data)
    one = found(find_ptx(bare, tmp_path / "aa" / f"{NAME}.ptx", environment={}))
    assert one.certain
    assert one.evidence == "the cubin beside it has the machine code of the dump"


def test_nothing_to_be_found_says_what_to_do(bare: Loaded) -> None:
    one = find_ptx(bare, environment={})
    assert isinstance(one, Missing)
    assert one.why.startswith("the dump has no PTX of ring, as it was compiled without -lineinfo")


def program(section: bytes, name: bytes = b".nv_fatbin") -> bytes:
    """An ELF file of a host with one section."""
    names = b"\0" + name + b"\0.shstrtab\0"
    head = 64
    at = head + len(section) + len(names)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = ident + pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 0, at, 0, 64, 0, 0, 64, 3, 2)
    rows = (
        bytes(64),
        pack("<IIQQQQIIQQ", 1, 1, 0, 0, head, len(section), 0, 0, 1, 0),
        pack("<IIQQQQIIQQ", 2 + len(name), 3, 0, 0, head + len(section), len(names), 0, 0, 1, 0),
    )
    return header + section + names + b"".join(rows)


def test_the_fatbin_of_a_program(kernel: Loaded, bare: Loaded, text: str, tmp_path: Path) -> None:
    cubin = kernel.image.data
    older = text.replace("sm_90a", "sm_80")
    bins = fatbin(entry(older.encode() + b"\0"), entry(cubin, kind=2))
    bins += fatbin(entry(text.encode() + b"\0"))
    data = program(bins)
    assert list(texts_of_program(data)) == [older, text]
    assert list(cubins_of_program(data)) == [cubin.ljust(-(-len(cubin) // 8) * 8, b"\0")]
    path = tmp_path / "program"
    path.write_bytes(data)
    one = found(find_ptx(kernel, path, environment={}))
    assert (one.text, one.certain, one.source) == (text, True, f"in the program {path}")
    # without the text in the dump the program's own machine code says that it is the program
    assert found(find_ptx(bare, path, environment={})).certain
    assert list(texts_of_program(program(bins, b".nvFatBin"))) == []
    assert list(texts_of_program(data[:-100])) == []


def test_damaged_machine_code_beside_the_text_is_an_error_of_the_file(
    bare: Loaded, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "program"
    damaged = entry(b"\xff", 0x2011, 100, kind=2)
    path.write_bytes(program(fatbin(entry(text.encode() + b"\0"), damaged)))
    with pytest.raises(DumpError, match=f"{path}: a compressed entry is damaged"):
        find_ptx(bare, path, environment={})


def test_damaged_fatbins_end() -> None:
    """Heads of no bytes, and sizes that no memory has."""
    endless = pack("<IHHQ", 0xBA55ED50, 1, 0, 0)
    assert list(texts_of_program(program(endless))) == []
    with pytest.raises(FatbinError, match="damaged"):
        list(texts_of_program(program(fatbin(bytes(64)))))
    huge = entry(b"abc", 0x2011, 1 << 40)
    with pytest.raises(FatbinError, match="larger than 256 MiB"):
        list(texts_of_program(program(fatbin(huge))))
    # 4 literals, then a copy of far more than the entry is said to have
    bomb = bytes([0x4F]) + b"abcd" + pack("<H", 1) + b"\xff" * 1000 + b"\0"
    with pytest.raises(FatbinError, match="damaged"):
        list(texts_of_program(program(fatbin(entry(bomb, 0x2011, 100)))))


def test_plain_text_has_no_comments_and_positions() -> None:
    assert plain("a; // b\n\t.loc 1 2 3\n/* c\n */ d;\n") == "a; d;"


def test_positions_of_the_source_come_from_the_cubin(kernel: Loaded, text: str) -> None:
    one = found(find_ptx(kernel, environment={}))
    code = function_at(kernel.image, CoreDump(RING).grids[0].entry)
    assert code is not None
    module = with_positions(one.module, NAME, text, code)
    body = module.entries[0].body
    assert body is not None
    waits = {
        i.place.line: (i.located.line, i.located.outermost.line)
        for i in body.code
        if i.located is not None and i.opcode.startswith("mbarrier.try_wait")
    }
    assert waits[277] == (10, 21)
    # only of its first try, which is said to be from line 104, a position is known
    assert waits[107] == (10, 19)
    assert waits[164] == (10, 19)
    # of what no machine code is left, the lines around it say where it is
    moves = {i.place.line: i.located for i in body.code if i.opcode == "or.pred"}
    assert moves[86] is not None
    assert moves[86].line == 19
    # without machine code around it that has a position, none is said
    assert all(i.located is None for i in body.code if i.place.line in (37, 38, 39, 40))
    assert module.files[1].endswith("ring.cu")
    # what has positions keeps them
    assert with_positions(module, NAME, text, code) is module
