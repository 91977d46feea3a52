"""Programs, libraries, fatbins and cubins as targets; which commands check CUDA source is said."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.capture.test_fatbin import entry, fatbin, program
from tests.cubin.compiled import image

from .conftest import ROOT, Invoke, Write
from .test_ptx import LAUNCH
from .test_ptx import PTX as WAITS

NVCC = "nvcc -gencode 'arch=compute_90a,code=[sm_90a,compute_90a]' -lineinfo"
CAPTURE = ["  tilesim capture -o captured -- ./prog", "  tilesim check captured"]
PTX = ".version 9.0\n.target sm_90a\n.entry k() { ret; }\n"


def said(tilesim_cli: Invoke, target: str) -> list[str]:
    """The lines of the error of `tilesim show`, without what comes before."""
    result = tilesim_cli("show", target)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    return result.stderr.removeprefix("error: ").splitlines()


def test_a_source(write: Write, tilesim_cli: Invoke) -> None:
    write("prog.cu", "__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n")
    first, *commands = said(tilesim_cli, "prog.cu")
    assert first.startswith("prog.cu is CUDA source: compile it")
    assert commands == [f"  {NVCC} prog.cu -o prog", *CAPTURE]


def test_a_source_without_main(write: Write, tilesim_cli: Invoke) -> None:
    write("my k.cu", "__global__ void k() {}\n")
    _, *commands = said(tilesim_cli, "my k.cu")
    assert commands[0] == "  nvcc -ptx -arch=sm_90a -lineinfo 'my k.cu' -o 'my k.ptx'"
    assert commands[1].startswith("  tilesim launch-template 'my k.ptx' -o 'my k.json'")
    assert commands[2] == "  tilesim check 'my k.ptx'"
    write("my k.json", "{}")
    assert said(tilesim_cli, "my k.cu")[1:] == commands[::2]


@pytest.mark.parametrize(
    ("ptx", "says", "compiles"),
    [
        (f"{PTX}.loc 1 1 1\n", "prog is a program: record what it launches", False),
        (PTX, "compiled without -lineinfo, so that reports name lines of PTX only", False),
        ("", "prog is a program without kernels", True),
    ],
)
def test_a_program(ptx: str, says: str, compiles: bool, write: Write, tilesim_cli: Invoke) -> None:
    write("prog", "")
    Path("prog").write_bytes(program((64, fatbin(entry(ptx.encode())))))
    first, *commands = said(tilesim_cli, "./prog")
    assert says in first
    assert commands == [f"  {NVCC} SOURCE.cu -o prog"] * compiles + CAPTURE


def test_a_library_machine_code_and_what_is_damaged(write: Write, tilesim_cli: Invoke) -> None:
    write("lib.so", "")
    Path("lib.so").write_bytes(program((64, fatbin(entry(PTX.encode())))))
    first, command, _ = said(tilesim_cli, "lib.so")
    assert "a program launches that loads it" in first
    assert command == "  tilesim capture -o captured -- PROGRAM"
    Path("k.cubin").write_bytes(b"\x7fELF".ljust(18, b"\0") + (190).to_bytes(2, "little"))
    assert said(tilesim_cli, "k.cubin") == ["k.cubin: this is not a cubin (no ELF file)"]
    Path("cut").write_bytes(program((64, fatbin(entry(b"abc", 1 << 13, 9)))))
    (line,) = said(tilesim_cli, "./cut")
    assert line == "cut: a compressed entry is damaged"


def test_a_report_keeps_the_commands_whole(write: Write, tilesim_cli: Invoke) -> None:
    write("prog.cu", "int main() {}\n")
    lines = tilesim_cli("check", "prog.cu").stdout.splitlines()
    assert f"    {NVCC} prog.cu -o prog" in lines


ARRIVES = WAITS.replace("ARRIVE", "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];")
HANGS = WAITS.replace("ARRIVE", "")
#: a kernel that waits for an arrival on an mbarrier, which is made if ARRIVES is defined
SOURCE = """
__device__ unsigned at(void *p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void __launch_bounds__(64) k(int *out) {
    __shared__ unsigned long long full;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(&full)) : "memory");
    __syncthreads();
#ifdef ARRIVES
    if (threadIdx.x == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at(&full)) : "memory");
#endif
    asm volatile("{ .reg .pred p;"
                 "L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra L; }"
                 :: "r"(at(&full)) : "memory");
    out[threadIdx.x] = 1;
}
"""
CUBIN_LAUNCH = {
    "schema": "tilesim.launch/1", "entry": "k", "grid": [1], "block": [64],
    "params": [{"kind": "pointer", "name": "out", "bytes": 256}],
}  # fmt: skip


def put(name: str, data: bytes, launch: Mapping[str, object] | None = LAUNCH) -> None:
    Path(name).write_bytes(data)
    if launch is not None:
        Path(name).with_suffix(".json").write_text(json.dumps(launch))


@pytest.mark.parametrize("name", ["prog", "lib.so", "lib.so.2", "k.fatbin"])
def test_a_file_with_ptx_is_checked_as_the_ptx(
    name: str, write: Write, tilesim_cli: Invoke
) -> None:
    write("x", "")
    for ptx, code, verdict in ((ARRIVES, 0, "PROVED"), (HANGS, 1, "FAILED")):
        data = fatbin(entry(ptx.encode()))
        put(name, data if name == "k.fatbin" else program((64, data)))
        result = tilesim_cli("check", f"./{name}")
        assert (result.exit_code, result.output.split()[:2]) == (code, [verdict, f"{name}::k"])
    assert f"{name}.1.sm_90a.ptx:13" in result.output
    assert "L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;" in result.output


def test_of_several_targets_the_one_that_a_gpu_loads_is_checked_and_said(
    write: Write, tilesim_cli: Invoke
) -> None:
    write("x", "")
    blackwell = HANGS.replace("sm_90a", "sm_100a")
    put("prog", program((64, fatbin(entry(blackwell.encode()), entry(ARRIVES.encode())))))
    result = tilesim_cli("check", "./prog")
    assert result.exit_code == 0
    said = " ".join(result.output.split())
    assert "the PTX is that for sm_90a, which an H200 loads; it is also there for sm_100a" in said
    result = tilesim_cli("check", "prog::k[arch=sm_100a]")
    assert result.exit_code == 1
    assert result.output.startswith("FAILED prog::k[arch=sm_100a]  (deadlock)")
    result = tilesim_cli("check", "prog::k[arch=sm_80]")
    assert result.exit_code == 2
    assert "the PTX of k is for sm_100a, sm_90a, and none of it runs on sm_80" in result.output


def test_a_cubin_with_lines_has_its_ptx_and_its_source(write: Write, tilesim_cli: Invoke) -> None:
    write("k.cu", SOURCE)
    put("right.cubin", image(f"#define ARRIVES\n{SOURCE}").data, CUBIN_LAUNCH)
    put("k.cubin", image(SOURCE).data, CUBIN_LAUNCH)
    assert tilesim_cli("check", "right.cubin").output.startswith("PROVED right.cubin::k")
    result = tilesim_cli("check", "k.cubin")
    assert result.exit_code == 1
    assert "k.cu:12" in result.output
    assert "k.cubin.ptx:" in result.output
    template = json.loads(tilesim_cli("launch-template", "k.cubin").output)
    assert (template["entry"], template["block"]) == ("k", ["FILL_IN"])
    put("k.cubin", image(SOURCE).data, {**CUBIN_LAUNCH, "block": [128]})
    result = tilesim_cli("check", "k.cubin")
    assert result.exit_code == 2
    assert "maxntid" in result.output


def test_a_kernel_without_ptx_is_unsupported_with_what_is_known_of_it(
    write: Write, tilesim_cli: Invoke
) -> None:
    write("x", "")
    put("k.cubin", image(SOURCE, lines=False).data, None)
    result = tilesim_cli("check", "k.cubin::k")
    assert result.exit_code == 3
    said = " ".join(result.output.split())
    assert said.startswith("UNSUPPORTED k.cubin::k (unsupported)")
    assert (
        "there is no PTX of k, and of machine code alone nothing is proved; it has code for "
        "sm_90a, 1 parameter of 8 bytes, blocks of at most 64x1x1 threads" in said
    )
    assert "8 bytes of static shared memory, 1 mbarrier, 1 named barrier" in said
    assert "compile with -lineinfo" in said
    assert "\\x" not in result.output  # no line of a binary file is shown
    result = tilesim_cli("check", "k.cubin::other")
    assert result.exit_code == 2
    assert "k.cubin has no kernel other; it has k" in result.output
    assert tilesim_cli("show", "--mir", "k.cubin").exit_code == 2


def test_an_inventory_of_machine_code(write: Write, tilesim_cli: Invoke) -> None:
    write("x", "")
    Path("folder").mkdir()
    cubin = image(SOURCE, lines=False).data
    Path("folder/k.cubin").write_bytes(cubin)
    Path("folder/prog").write_bytes(program((64, fatbin(entry(cubin, kind=2)))))
    said = tilesim_cli("show", "folder/k.cubin::k").output
    assert said.startswith("INVENTORY folder/k.cubin::k\n")
    assert "which proves nothing; numbers compared: 1 agree, 1 differ, 0 not known" in " ".join(
        said.split()
    )
    assert "mbarrier  0x400: differs: it expects 1, and 0 arrive" in said
    assert "barrier   0: agrees: it is of 64 threads, and these come to it" in said
    document = json.loads(tilesim_cli("show", "folder", "--format", "json").output)
    assert [one["file"] for one in document["kernels"]] == ["folder/k.cubin", "folder/prog"]
    (row,) = document["kernels"][1]["mbarriers"]
    assert (row["addresses"], row["expects"], row["bytes"]) == ([0x400], 1, None)
    assert row["arrivals"] == {"answer": "differs", "why": "it expects 1, and 0 arrive"}
    assert [site["kind"] for site in row["sites"]] == ["init", "wait", "wait"]
    result = tilesim_cli("show", "folder", "--kernel", "other")
    assert (result.exit_code, result.stderr) == (2, "error: folder has no kernel other\n")


def test_files_of_a_folder_that_cannot_be_read_are_named(write: Write, tilesim_cli: Invoke) -> None:
    write("x", "")
    Path("folder").mkdir()
    cubin = image(SOURCE, lines=False).data
    Path("folder/a.cubin").write_bytes(cubin[:200])
    Path("folder/b.cubin").write_bytes(cubin)
    result = tilesim_cli("show", "folder")
    assert result.exit_code == 0
    assert "INVENTORY folder/b.cubin::k" in result.output
    assert "not read: folder/a.cubin" in result.output
    assert tilesim_cli("show", "folder/a.cubin").exit_code == 2
    result = tilesim_cli("show", "folder/b.cubin", "--time-limit", "0.001s")
    assert "it took too long to find which threads come to which" in result.output


def test_a_folder_has_cubins_but_not_those_beside_their_ptx(
    write: Write, tilesim_cli: Invoke
) -> None:
    write("x", "")
    Path("f").mkdir()
    put("f/a.cubin", image(f"#define ARRIVES\n{SOURCE}").data, CUBIN_LAUNCH)
    put("f/b.ptx", ARRIVES.encode())
    Path("f/b.cubin").write_bytes(b"the machine code of b.ptx")
    result = tilesim_cli("check", "f")
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "2 kernels: 2 proved"
    assert "f/a.cubin::k" in result.output


def test_damaged_files_are_one_line(write: Write, tilesim_cli: Invoke) -> None:
    write("x", "")
    rng = random.Random(0)
    whole = {
        "k.cubin": image(SOURCE).data, "k.fatbin": fatbin(entry(ARRIVES.encode())),
        "prog": program((64, fatbin(entry(ARRIVES.encode())))),
    }  # fmt: skip
    for number in range(60):
        name = rng.choice([*whole])
        data = bytearray(whole[name])
        for _ in range(rng.randrange(1, 40)):
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        put(name, bytes(data[: rng.randrange(20, len(data) + 1)]), CUBIN_LAUNCH)
        result = tilesim_cli("check", f"./{name}")
        assert result.exit_code in (0, 1, 2, 3), (number, name, result.output)
        assert "Traceback" not in result.output


DUMPS = ROOT / "tests" / "autopsy" / "dumps"


def test_a_dump_has_the_ptx_and_the_launch(write: Write, tilesim_cli: Invoke) -> None:
    write("x", "")
    put("hang.nvcudmp.gz", (DUMPS / "relayed.nvcudmp.gz").read_bytes(), None)
    result = tilesim_cli("check", "hang.nvcudmp.gz")
    assert result.exit_code == 1
    assert result.output.startswith("FAILED hang.nvcudmp.gz::relayed  (deadlock)")
    said = " ".join(result.output.split())
    assert "initialised with 2, and 1 arrival is made on it per use" in said
    assert "@%p7 mbarrier.init.shared::cta.b64 [%r22], 2;" in said
    assert "as in hang.nvcudmp.gz; its dynamic shared memory has 16385 to 16512 bytes" in said
    assert "how large arg5 is is not in the dump" in said
    result = tilesim_cli("check", "hang.nvcudmp.gz::other")
    assert (result.exit_code, "it has relayed" in result.output) == (2, True)
    result = tilesim_cli("check", "hang.nvcudmp.gz", "--launch", "x.json")
    assert (result.exit_code, "has its launches itself" in result.output) == (2, True)


def test_a_dump_of_several_kernels_has_a_target_for_each(write: Write, tilesim_cli: Invoke) -> None:
    write("x", "")
    data = gzip.decompress((DUMPS / "dependent.nvcudmp.gz").read_bytes())
    put("d.nvcudmp", data, None)
    result = tilesim_cli("check", "d.nvcudmp")
    assert result.output.splitlines()[-1] == "2 kernels: 1 proved, 1 bounded"
    assert tilesim_cli("check", "d.nvcudmp::second").exit_code == 0
    put("d.nvcudmp", data[: len(data) // 2], None)
    result = tilesim_cli("check", "d.nvcudmp")
    assert result.exit_code == 2
    assert "was it cut?" in result.output


def test_the_ptx_in_a_dump_is_written_with_its_launch(write: Write, tilesim_cli: Invoke) -> None:
    write("x", "")
    put("hang.nvcudmp.gz", (DUMPS / "relayed.nvcudmp.gz").read_bytes(), None)
    assert tilesim_cli("emit", "hang.nvcudmp.gz", "-o", "k.ptx").exit_code == 0
    assert Path("k.ptx").read_text().lstrip().startswith(".version")
    assert json.loads(Path("k.json").read_text())["entry"] == "relayed"
    again = tilesim_cli("check", "k.ptx")
    assert again.output.startswith("FAILED k.ptx::relayed  (deadlock)")
    assert "as in hang.nvcudmp.gz" in again.output
    assert tilesim_cli("emit", "hang.nvcudmp.gz", "-o", "k.cubin").exit_code == 2
