"""What a program is told of the GPU, and what is kept of what it does: the answers to the stub.

Every question has a method of its name that takes the question's numbers and its text, and returns
the answer's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, auto
from itertools import count
from math import prod
from struct import pack

from tilesim.capture import devices, maps
from tilesim.capture.errors import CudaError, Number
from tilesim.capture.folder import Folder, say
from tilesim.capture.launches import Launches, Request
from tilesim.capture.memory import MANAGED, Memory
from tilesim.capture.modules import Kernel, Modules, Variable
from tilesim.cubin import fatbin
from tilesim.cubin.fatbin import FatbinError, Read
from tilesim.errors import TilesimError
from tilesim.ptx.launch import Map
from tilesim.ptx.syntax import LaunchError
from tilesim.ptx.tensormap import encode

#: attributes of functions by ``CUfunction_attribute``
_DYNAMIC_SHARED, _NONPORTABLE = 8, 14
#: bytes of ``cudaFuncAttributes``
_ATTRIBUTES_SIZE = 144
#: numbers that functions and variables have which were looked up by name
_numbers = count(0x7100000000000000, 16)


class Question(IntEnum):
    """What the stub asks; ``stub/stub.h`` has the same order."""

    HELLO = 0
    UNANSWERED = auto()
    MODULE = auto()
    FUNCTION = auto()
    REGISTER = auto()
    VARIABLE = auto()
    SYMBOL = auto()
    ALLOCATED = auto()
    FREED = auto()
    COPIED = auto()
    FORGOTTEN = auto()
    EXTENT = auto()
    LAUNCH = auto()
    TILED = auto()
    IM2COL = auto()
    PROPERTIES = auto()
    ATTRIBUTE = auto()
    FUNCTION_ATTRIBUTES = auto()
    SET_ATTRIBUTE = auto()
    BLOCKS = auto()
    CLUSTERS = auto()
    UNLOADED = auto()


class Session:
    """One process of the program; ``read(address, size)`` gives bytes of its memory."""

    def __init__(self, target: str, folder: Folder, read: Read) -> None:
        self._target = target
        self._read = read
        self._memory = Memory()
        self._modules = Modules(target)
        self._launches = Launches(folder, self._memory, self._modules, read)
        self._said: set[str] = set()

    def answer(self, question: Question, numbers: Sequence[int], text: str) -> bytes:
        """The answer's bytes.

        Raises:
            CudaError: the program gets an error.
        """
        try:
            method = getattr(self, question.name.lower())
            answer: bytes = method(numbers, text)
        except FatbinError as error:
            self._say(f"a kernel of the program cannot be read: {error}")
            raise CudaError(Number.NO_IMAGE) from error
        except LaunchError as error:
            self._say(str(error))
            raise CudaError(Number.INVALID_VALUE) from error
        except TilesimError as error:
            self._say(str(error))
            raise CudaError(Number.INVALID_PTX) from error
        return answer

    def _say(self, text: str) -> None:
        """To the user, once."""
        if text not in self._said:
            self._said.add(text)
            say(text)

    def hello(self, numbers: Sequence[int], text: str) -> bytes:
        """The process begins."""
        return b""

    def unanswered(self, numbers: Sequence[int], text: str) -> bytes:
        """The program calls something that the stub does not have."""
        self._say(f"tilesim capture does not answer {text}")
        return b""

    # ------------------------------------------------------------------ modules

    def module(self, numbers: Sequence[int], text: str) -> bytes:
        """The image at an address is loaded; its number."""
        return pack("<Q", self._modules.load(fatbin.image(self._read, numbers[0])))

    def unloaded(self, numbers: Sequence[int], text: str) -> bytes:
        """A module is not used any more; what was launched of it is written already."""
        return b""

    def function(self, numbers: Sequence[int], text: str) -> bytes:
        """The number of the kernel ``text`` of a module; with a second number, of the variable."""
        loaded = self._modules.loaded.get(numbers[0])
        if loaded is None:
            raise CudaError(Number.INVALID_HANDLE)
        key = next(_numbers)
        if len(numbers) == 1:
            if all(entry.name != text for entry in loaded.module.entries):
                raise CudaError(Number.NOT_FOUND)
            self._modules.kernels[key] = Kernel(text, loaded)
        else:
            sizes = [v.size for v in loaded.module.variables if v.name == text]
            if not sizes:
                raise CudaError(Number.NOT_FOUND)
            self._modules.variables[key] = Variable(text, loaded, sizes[0])
        return pack("<Q", key)

    def register(self, numbers: Sequence[int], text: str) -> bytes:
        """The program calls the kernel ``text`` of a module by an address."""
        self._modules.kernels[numbers[1]] = Kernel(text, self._modules.loaded[numbers[0]])
        return b""

    def variable(self, numbers: Sequence[int], text: str) -> bytes:
        """It calls a variable of a module by an address; the third number is its size."""
        loaded = self._modules.loaded[numbers[0]]
        self._modules.variables[numbers[1]] = Variable(text, loaded, numbers[2])
        return b""

    def symbol(self, numbers: Sequence[int], text: str) -> bytes:
        """Where a variable lies and its bytes; a second number says where from now on."""
        found = self._modules.variables.get(numbers[0])
        if found is None:
            raise CudaError(Number.INVALID_VALUE)
        found.address = numbers[1] or found.address
        return pack("<QQ", found.address, found.size)

    # ------------------------------------------------------------------ memory

    def allocated(self, numbers: Sequence[int], text: str) -> bytes:
        """Address, size and kind of new memory."""
        base, size, kind = numbers
        self._memory.allocate(base, size, kind)
        return b""

    def freed(self, numbers: Sequence[int], text: str) -> bytes:
        """The size of what was allocated at an address."""
        found = self._memory.free(numbers[0])
        if found is None:
            raise CudaError(Number.INVALID_VALUE)
        return pack("<Q", found.size)

    def copied(self, numbers: Sequence[int], text: str) -> bytes:
        """The host has written to an address, from another one (0: a value), so many bytes."""
        to, source, size = numbers
        self._memory.copied(to, source, size)
        return b""

    def forgotten(self, numbers: Sequence[int], text: str) -> bytes:
        """The host writes to an allocation without a call."""
        found = self._memory.at(numbers[0])
        if found is not None:
            self._memory.allocate(found.base, found.size, MANAGED)
        return b""

    def extent(self, numbers: Sequence[int], text: str) -> bytes:
        """Base, size and kind of the allocation at an address; nothing: there is none."""
        found = self._memory.at(numbers[0])
        if found is None or numbers[0] == found.base + found.size:
            return b""
        return pack("<QQQ", found.base, found.size, found.kind)

    # ------------------------------------------------------------------ the device, kernels

    def attribute(self, numbers: Sequence[int], text: str) -> bytes:
        """Of the device, by number."""
        return pack("<Q", devices.attribute(self._target, numbers[0]))

    def properties(self, numbers: Sequence[int], text: str) -> bytes:
        """A ``cudaDeviceProp`` of a version of CUDA."""
        return devices.properties(self._target, numbers[0])

    def function_attributes(self, numbers: Sequence[int], text: str) -> bytes:
        """Of a kernel: ``cudaFuncAttributes`` if the second number is not 0, else all of the
        driver's in order."""
        kernel = self._modules.kernel(numbers[0])
        major, minor = devices.DEVICES[self._target].capability
        arch, shared = 10 * major + minor, kernel.static_shared
        cluster, registers = kernel.cluster, kernel.registers or devices.REGISTERS_USUAL
        rest = (
            arch, arch, 0, kernel.most_dynamic, 0, any(cluster), *cluster, kernel.nonportable, 0,
        )  # fmt: skip
        if numbers[1]:
            made = pack("<3Q13i", shared, 0, 0, kernel.threads, registers, *rest)
            return made.ljust(_ATTRIBUTES_SIZE, b"\0")
        return pack("<16i", kernel.threads, shared, 0, 0, registers, *rest)

    def set_attribute(self, numbers: Sequence[int], text: str) -> bytes:
        """Of a kernel: attribute and value."""
        key, which, value = numbers
        kernel = self._modules.kernel(key)
        if which == _DYNAMIC_SHARED:
            if value > devices.SHARED_PER_CTA - kernel.static_shared:
                raise CudaError(Number.INVALID_VALUE)
            kernel.dynamic_shared = value
        elif which == _NONPORTABLE:
            kernel.nonportable = bool(value)
        return b""

    def blocks(self, numbers: Sequence[int], text: str) -> bytes:
        """CTAs with so many threads and dynamic shared bytes that a multiprocessor holds."""
        key, threads, shared = numbers
        return pack("<Q", self._modules.kernel(key).resident(threads, shared))

    def clusters(self, numbers: Sequence[int], text: str) -> bytes:
        """Clusters of a shape (three numbers) that the GPU holds."""
        key, *shape, threads, shared = numbers
        each = self._modules.kernel(key).resident(threads, shared)
        all_ctas = each * devices.DEVICES[self._target].multiprocessors
        return pack("<Q", all_ctas // max(1, prod(shape)))

    # ------------------------------------------------------------------ tensor maps, launches

    def tiled(self, numbers: Sequence[int], text: str) -> bytes:
        """The arguments of ``cuTensorMapEncodeTiled``; the map's bytes."""
        return self._encoded(*maps.tiled(numbers, self._read))

    def im2col(self, numbers: Sequence[int], text: str) -> bytes:
        """The arguments of ``cuTensorMapEncodeIm2col``; the map's bytes."""
        return self._encoded(*maps.im2col(numbers, self._read))

    def _encoded(self, value: Map, start: int, promotion: int) -> bytes:
        made = encode(value, start, promotion)
        self._launches.maps.add(made)
        return made

    def launch(self, numbers: Sequence[int], text: str) -> bytes:
        """A kernel with its grid, block, cluster, shared bytes, flags and arguments."""
        self._launches.add(Request.of(numbers))
        return b""
