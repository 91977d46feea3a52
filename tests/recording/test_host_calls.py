"""Launches that host code asks for in C: what is read of them, and what is answered."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

import pytest

from tilesim.errors import UsageError
from tilesim.ptx.parser import read
from tilesim.recording.host_calls import ARGUMENTS, FUNCTION, NOT_SUPPORTED, SUCCESS, Call, Launches

(ENTRY,) = read(
    ".version 8.6\n.target sm_90a\n.address_size 64\n"
    ".visible .entry scaled(.param .u64 x, .param .f32 by) { ret; }\n",
    "scaled.ptx",
).entries
#: kinds of attributes in ``cuda.h``
KINDS = {"cooperative": 2, "cluster": 4, "dependent": 6}


def call(function: Callable[..., int], *given: int) -> int:
    """A call as host code makes it, which gives fewer arguments than there may be."""
    return int(FUNCTION(function)(*given, *[None] * (ARGUMENTS - len(given))))


def launch(launches: Launches, **attributes: tuple[int, ...]) -> int:
    """Launches kernel ``scaled`` of library 7 as ``cuda.h`` lays a launch out, and says what is
    answered."""
    handle, name = ctypes.c_uint64(), ctypes.create_string_buffer(b"scaled")
    assert not call(launches.kernel, ctypes.addressof(handle), 7, ctypes.addressof(name))
    said = [
        struct.pack(f"<{2 + len(value)}I", KINDS[kind], 0, *value).ljust(72, b"\xff")
        for kind, value in attributes.items()
    ]
    listed = ctypes.create_string_buffer(b"".join(said))
    at = ctypes.addressof(listed)
    config = struct.pack("<8I2QI", 2, 3, 4, 128, 2, 1, 4096, 0, 0, at, len(said))
    values = ctypes.create_string_buffer(struct.pack("<Qf", 0x7000, 1.5))
    places = struct.pack("<2Q", ctypes.addressof(values), ctypes.addressof(values) + 8)
    kept = [ctypes.create_string_buffer(data) for data in (config, places)]
    first, second = map(ctypes.addressof, kept)
    return call(launches.launch, first, handle.value, second)


def test_a_launch_is_what_the_configuration_and_its_attributes_say() -> None:
    launches = Launches()
    seen: list[tuple[Call, list[bytes]]] = []
    launches.launched = lambda call: seen.append((call, call.passed(ENTRY.params)))
    assert launch(launches) == SUCCESS
    assert launch(launches, dependent=(1,), cluster=(2, 1, 1), cooperative=(0,)) == SUCCESS
    assert launch(launches, dependent=(0,), cooperative=(1,)) == SUCCESS
    (plain, data), (first, _), (second, _) = seen
    assert (plain.library, plain.kernel, plain.shared) == (7, "scaled", 4096)
    assert (plain.grid, plain.block, plain.cluster) == ((2, 3, 4), (128, 2, 1), (1, 1, 1))
    assert (plain.cooperative, plain.dependent) == (False, False)
    assert (first.cluster, first.cooperative, first.dependent) == ((2, 1, 1), False, True)
    assert (second.cluster, second.cooperative, second.dependent) == ((1, 1, 1), True, False)
    assert data == [struct.pack("<Q", 0x7000), struct.pack("<f", 1.5)]


def test_what_a_launch_raises_is_raised_after_the_host_code() -> None:
    launches = Launches()
    assert launch(launches) == NOT_SUPPORTED

    def refused(call: Call) -> None:
        raise UsageError(f"{call.kernel} is not known")

    launches.launched = refused
    assert launch(launches) == SUCCESS
    with pytest.raises(UsageError, match="scaled is not known"):
        launches.finish()
    launches.finish()
