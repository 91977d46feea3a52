"""What a TARGET can be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tilesim.dsl.kernel import Kernel
from tilesim.errors import UsageError
from tilesim.ir.expr import ScalarParam
from tilesim.ir.program import For, walk
from tilesim.kernels.hopper import copy, matmul_v5
from tilesim.loader import load

from . import kernels
from .conftest import Invoke, Write


def test_file_gives_the_kernels_it_defines_in_order(write: Write) -> None:
    text = kernels.GOOD + "\n\nfrom tilesim.kernels.hopper.copy import vector\n\n\n"
    text += "@ts.kernel(warps=1)\ndef second(k):\n    k.sync_threads()\n\nalias = second\n"
    name = write("two.py", text + "program = second.build()\n")
    assert [t.id for t in load(name)] == ["two.py::handshake", "two.py::second", "two.py::program"]
    assert [t.id for t in load("two.py::alias")] == ["two.py::alias"]
    assert [t.id for t in load("two.py::vector")] == ["two.py::vector"]


def test_an_edit_of_the_same_second_and_size_is_seen(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    text = "import tilesim as ts\n\n@ts.kernel(warps={})\ndef k(k):\n    k.sync_threads()\n"
    name = write("k.py", text.format(2))
    before = Path(name).stat()
    assert load(name)[0].build().warps == 2
    write("k.py", text.format(3))
    os.utime(name, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert load(name)[0].build().warps == 3


def test_module_with_cases_gives_the_family() -> None:
    targets = load(copy.__name__)
    assert [t.id for t in targets] == [case.target for case in copy.CASES]
    assert [t.build() for t in targets] == [case.build() for case in copy.CASES]


def test_cases_that_differ_in_strictness_only_are_one_target() -> None:
    ids = [t.id for t in load("tilesim.kernels.nvfuser.printed")]
    assert len(ids) == len(set(ids)) == 7


def test_parameters_in_brackets_and_as_options() -> None:
    (target,) = load(f"{matmul_v5.__name__}::matmul[stages=2,ctas=1]", {"stages": "0x3"})
    assert target.id == f"{matmul_v5.__name__}::matmul[stages=3,ctas=1]"
    assert target.build() == matmul_v5.matmul.build(stages=3, ctas=1)
    assert target.arguments["iterations"] == 6


def test_values_in_brackets_may_contain_commas(write: Write) -> None:
    (target,) = load(f"{write('good.py', kernels.GOOD)}::handshake[name=a, b,rounds=3]")
    assert target.params == {"name": "a, b", "rounds": 3}


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"rounds": "7"}, 7),
        ({"rounds": "-7"}, -7),
        ({"scale": "2.5e-3"}, 2.5e-3),
        ({"name": "3"}, "3"),
        ({"parity": "false"}, False),
        ({"parity": "1"}, True),
    ],
)
def test_values_have_the_type_of_the_default(
    write: Write, given: dict[str, str], value: object
) -> None:
    (target,) = load(write("good.py", kernels.GOOD), given)
    (found,) = target.params.values()
    assert (type(found), found) == (type(value), value)


def test_default_of_another_type_is_read_as_a_python_literal(write: Write) -> None:
    text = kernels.HEAD + "@ts.kernel()\ndef f(k, *, shape=(1, 2), x=None):\n    pass\n"
    (target,) = load(write("f.py", text), {"shape": "(3, 4)", "x": "sm_90a"})
    assert target.params == {"shape": (3, 4), "x": "sm_90a"}


def test_file_named_like_a_library_does_not_hide_it(write: Write) -> None:
    (target,) = load(write("numpy.py", kernels.GOOD))
    assert isinstance(target.kernel, Kernel)
    import numpy

    assert hasattr(numpy, "ndarray")


def test_neighbours_can_be_imported(write: Write, tmp_path: Path) -> None:
    write("shapes_of_this_test.py", "ROUNDS = 3\n")
    text = "from shapes_of_this_test import ROUNDS\n" + kernels.GOOD
    (target,) = load(write("good.py", text.replace("rounds=2", "rounds=ROUNDS")))
    assert target.arguments["rounds"] == 3
    assert any(isinstance(s, For) for s in walk(target.build().body))


def test_a_file_that_changed_is_loaded_again(write: Write) -> None:
    name = write("good.py", kernels.GOOD)
    assert load(name)[0].arguments["rounds"] == 2
    write("good.py", kernels.GOOD.replace("rounds=2", "rounds=12345"))
    assert load(name)[0].arguments["rounds"] == 12345


def test_package_in_the_working_folder(write: Write, tmp_path: Path) -> None:
    (tmp_path / "package_of_this_test").mkdir()
    write("package_of_this_test/__init__.py", kernels.GOOD)
    (target,) = load("package_of_this_test")
    assert target.id == "package_of_this_test::handshake"


def test_tile_file_holds_a_program(write: Write) -> None:
    from tilesim.ir import text

    program = copy.vector.build()
    (target,) = load(write("k.tile", text.to_text(program)))
    assert target.id == "k.tile::vector"
    assert target.build() == program
    with pytest.raises(UsageError, match="has no parameters"):
        load("k.tile", {"stages": "1"})


def test_loading_leaves_the_search_path_alone(write: Write) -> None:
    """A file called like a library module must not shadow it, here or in worker processes."""
    before = list(sys.path)
    assert load(write("copy.py", kernels.GOOD))
    assert sys.path == before
    assert load(write("user.py", "import copy\n" + kernels.GOOD + "assert copy.deepcopy\n"))


SCALARS = """import tilesim as ts


@ts.kernel(warps=1)
def steps(k, *, size=8):
    n, flag = k.scalar("n", 3), k.scalar("flag", 1, "u8")
    X, x = k.tensor("X", ts.s32, (size,)), k.var("x", 0)
    with k.loop(n) as i, k.elected(), k.if_(flag.ne(0)):
        k.mem.store(X[i], i)  # here
"""


def test_scalars_of_the_host_are_set_like_parameters(write: Write, tilesim_cli: Invoke) -> None:
    name = write("steps.py", SCALARS)
    (target,) = load(name, {"n": "0x5", "size": "16"})
    assert target.id == "steps.py::steps[n=5,size=16]"
    assert [p.value for p in target.build().params if isinstance(p, ScalarParam)] == [5, 1]
    right = " ".join(tilesim_cli("check", name).output.split())
    assert "every schedule of the CTA with n = 3, flag = 1; strictness" in right
    wrong = tilesim_cli("check", name, "--param", "n=9")
    assert wrong.exit_code == 1
    assert "steps[n=9]" in wrong.output
    assert "element 8 of dimension 0 of X, which has 8" in wrong.output
    assert "steps.py:9" in wrong.output
    assert "with n = 9, flag = 1" in " ".join(wrong.output.split())
    off = tilesim_cli("check", name, "--param", "n=9", "--param", "flag=0")
    assert off.exit_code == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"flags": "1"}, r"no parameter 'flags' \(did you mean flag\?\); it has size, n, flag"),
        ({"n": "many"}, "parameter n of steps: 'many' is not of type int"),
    ],
)
def test_what_is_no_scalar_is_refused(write: Write, given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(write("steps.py", SCALARS), given)


def test_a_scalar_outside_its_type_is_rejected(write: Write, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("check", write("steps.py", SCALARS), "--param", "flag=256")
    assert result.exit_code != 0
    assert "scalar flag is 256, outside 0..255 of u8" in result.output
