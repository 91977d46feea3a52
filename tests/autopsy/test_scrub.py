"""What is taken out of a dump before it is committed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.autopsy import dump_writer as write
from tests.autopsy.scrub import main, packed, paths_in, read, scrubbed
from tilesim.autopsy.core_dump import CoreDump
from tilesim.errors import UsageError
from tilesim.records import replace

DUMPS = Path(__file__).parent / "dumps"
#: names of the kernels of the dumps that are kept here
KERNELS = {"ring": "_Z4ringPKfPfii", "waits": "_Z5waitsPViiiPi", "states": "_Z6statesPmS_i"}


def _said(path: Path) -> tuple[object, ...]:
    dump = CoreDump(path)
    return (
        dump.grids, [c.shared for c in dump.ctas], [[w.lanes for w in c.warps] for c in dump.ctas],
        dump.driver,
    )  # fmt: skip


def _with_a_driver(path: Path) -> Path:
    """The ring's dump with a cubin of the driver as well."""
    dump = write.copy_of(CoreDump(DUMPS / "ring.nvcudmp.gz"))
    (device,) = dump.devices
    driver = write.Module(b"\x7fELF relocated, the driver's", b"\x7fELF original, the driver's")
    contexts = [[*device.contexts[0], driver], *device.contexts[1:]]
    path.write_bytes(replace(dump, devices=[replace(device, contexts=contexts)]).to_bytes())
    return path


def test_images_of_the_driver_are_zeroed_and_the_rest_stays(tmp_path: Path) -> None:
    path = _with_a_driver(tmp_path / "core.nvcudmp")
    data = path.read_bytes()
    assert data.count(b"the driver's") == 2
    made = scrubbed(data, [KERNELS["ring"]], {})
    assert len(made) == len(data)
    assert b"the driver's" not in made
    assert made.count(b"\x7fELF") == data.count(b"\x7fELF") - 2
    target = tmp_path / "scrubbed.nvcudmp"
    target.write_bytes(made)
    assert _said(target) == _said(path)
    image = CoreDump(target).image_of(CoreDump(target).grids[0])
    assert image is not None
    assert KERNELS["ring"].encode() in image.data


def test_a_part_of_a_kernels_name_is_not_its_name(tmp_path: Path) -> None:
    data = read(DUMPS / "ring.nvcudmp.gz")
    for name in ("_Z4rin", "Z4ringPKfPfii", "other"):
        with pytest.raises(UsageError, match="no image of the dump"):
            scrubbed(data, [name], {})


def test_paths_are_replaced_by_shorter_ones_in_place(tmp_path: Path) -> None:
    data = read(DUMPS / "ring.nvcudmp.gz")
    old = next(path for path in paths_in(data) if path.startswith("/src"))
    made = scrubbed(data, [KERNELS["ring"]], {old: "/x", "/nowhere/at/all": "/y"})
    assert len(made) == len(data)
    assert old.encode() not in made
    assert b"/x" + b"_" * (len(old) - 2) in made
    path = tmp_path / "scrubbed.nvcudmp"
    path.write_bytes(made)
    assert _said(path) == _said(DUMPS / "ring.nvcudmp.gz")
    with pytest.raises(UsageError, match="is longer than"):
        scrubbed(data, [KERNELS["ring"]], {"/s": "/longer"})


def test_no_dump(tmp_path: Path) -> None:
    for data in (b"", b"\x7fELF", b"MZ" * 100):
        with pytest.raises(UsageError, match="not a core dump"):
            scrubbed(data, ["k"], {})


def test_a_dump_that_is_cut() -> None:
    data = read(DUMPS / "ring.nvcudmp.gz")
    with pytest.raises(UsageError, match="is cut"):
        scrubbed(data[: len(data) // 2], [KERNELS["ring"]], {})


def test_the_command_says_which_paths_are_left(tmp_path: Path) -> None:
    target = tmp_path / "out.gz"
    given = [str(DUMPS / "ring.nvcudmp.gz"), str(target), "--kernel", KERNELS["ring"]]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 0, done.output
    assert "left: /src/examples" in done.output
    assert read(target) == read(DUMPS / "ring.nvcudmp.gz")
    assert packed(b"x") == packed(b"x")
    done = CliRunner().invoke(main, [*given[:3], "nothing"])
    assert done.exit_code == 1
    assert "no image of the dump" in done.output


@pytest.mark.parametrize("path", sorted(DUMPS.glob("*.gz")), ids=lambda path: path.name)
def test_dumps_that_are_kept_are_scrubbed(path: Path) -> None:
    """Small, without the driver's images, without paths of the machine that made them."""
    assert path.stat().st_size < 200_000
    data = read(path)
    left = [p for p in paths_in(data) if not p.startswith(("/src/", "/usr/local/cuda", "/hangs"))]
    assert not left
