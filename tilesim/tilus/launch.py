"""Calls the host function of a kernel that tilus has compiled, in a process of its own.

``python launch.py LIBRARY FFI ARGUMENTS``: the library, that of ``tvm_ffi``, and in JSON the type
and the value of each argument. That of a tensor is [key, bytes, offset]: its storage has so many
bytes, and is allocated when it is met first. CUDA is what the process finds under that name.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from pathlib import Path
from typing import Any

#: what C++ calls the host function
_HOST = re.compile(rb"_Z12tilus_launch\w*")
_TYPES: dict[str, type[Any]] = {
    "bool": ctypes.c_bool, "int8_t": ctypes.c_int8, "int16_t": ctypes.c_int16,
    "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float, "double": ctypes.c_double,
}  # fmt: skip


def main(library: str, ffi: str, text: str) -> None:
    """See the module."""
    ctypes.CDLL(ffi, ctypes.RTLD_GLOBAL)
    host = ctypes.CDLL(library)
    (name,) = set(_HOST.findall(Path(library).read_bytes()))
    cuda = ctypes.CDLL(None)
    storages: dict[int, int] = {}
    arguments: list[Any] = []
    for kind, value in json.loads(text):
        if not isinstance(value, list):
            arguments.append(_TYPES[kind](value) if kind in _TYPES else ctypes.c_void_p(value))
            continue
        key, size, offset = value
        if key not in storages:
            place = ctypes.c_void_p()
            if cuda.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(size)) or place.value is None:
                raise MemoryError
            storages[key] = place.value
        arguments.append(ctypes.c_void_p(storages[key] + offset))
    host[name.decode()](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
