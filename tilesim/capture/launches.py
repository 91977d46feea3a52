"""Launches: refused as a driver would, described, and written once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tilesim.capture import devices
from tilesim.capture.errors import CudaError, Number
from tilesim.capture.folder import Folder
from tilesim.capture.memory import DEVICE, Allocation, Memory
from tilesim.capture.modules import Kernel, Modules
from tilesim.cubin.fatbin import Read
from tilesim.ptx.demangle import readable
from tilesim.ptx.inline import flatten
from tilesim.ptx.launch import UNSAID, Contents, Launch, Triple
from tilesim.ptx.parameters import Described
from tilesim.ptx.syntax import LaunchError
from tilesim.records import dataclass

_COOPERATIVE, _DEPENDENT = 1, 2
#: ``CU_LAUNCH_PARAM_BUFFER_POINTER`` and the end of such a list
_BUFFER, _END = 1, 0
_PORTABLE, _LARGEST_CLUSTER = 8, 16
_GRID = (2**31 - 1, 65535, 65535)
_WORD = 8


@dataclass(frozen=True)
class Request:
    """What the program asks for: ``arguments`` and ``extra`` are addresses, 0 if there are none."""

    kernel: int
    grid: Triple
    block: Triple
    cluster: Triple
    shared: int
    flags: int
    arguments: int
    extra: int

    @staticmethod
    def of(numbers: Sequence[int]) -> Request:
        """From the numbers of a question."""
        kernel, gx, gy, gz, bx, by, bz, cx, cy, cz, *rest = numbers
        return Request(kernel, (gx, gy, gz), (bx, by, bz), (cx, cy, cz), *rest)


class Launches:
    """Writes the kernels and launches of a process; ``maps`` are those that it has encoded."""

    def __init__(self, folder: Folder, memory: Memory, modules: Modules, read: Read) -> None:
        self._folder = folder
        self._memory = memory
        self._modules = modules
        self._read = read
        self.maps: set[bytes] = set()

    def add(self, request: Request) -> None:
        """A launch.

        Raises:
            CudaError: no GPU would take it.
        LaunchError: its grid counts clusters, which is not captured.
            FatbinError: there is no PTX of the kernel.
        """
        kernel = self._modules.kernel(request.kernel)
        if "blocksareclusters" in kernel.entry.directives:
            name = readable(kernel.name)
            raise LaunchError(
                f"{name}: its grid counts clusters (.blocksareclusters): not captured"
            )
        cluster = _accepted(kernel, request)
        described = Described(self._memory, self.maps.__contains__, self._contents, kernel.names)
        params = tuple(
            described.parameter(number, formal, data)
            for number, (formal, data) in enumerate(
                zip(kernel.entry.params, self._arguments(kernel, request), strict=True)
            )
        )
        variables = tuple(self._variables(kernel, described))
        launch = Launch(
            kernel.name, request.grid, request.block, cluster, request.shared,
            cooperative=bool(request.flags & _COOPERATIVE),
            dependent=bool(request.flags & _DEPENDENT), params=params,
            buffers=described.buffers(), variables=variables,
        )  # fmt: skip
        self._write(kernel, launch, described.used)
        self._ran(kernel, described.used)

    def _write(self, kernel: Kernel, launch: Launch, used: Sequence[Allocation]) -> None:
        text = kernel.loaded.text
        if not self._folder.is_new(text, launch):
            return
        own = {v.address for v in self._modules.variables.values() if v.address}
        if any(one.base in own for one in used):
            name = readable(kernel.name)
            self._folder.skip(f"{name}: it is given the address of a variable of a module")
            return
        self._folder.save(text, launch, kernel.loaded.cubin(kernel.name))

    def _arguments(self, kernel: Kernel, request: Request) -> Iterator[bytes]:
        """The bytes of every parameter."""
        formals = kernel.entry.params
        if not formals:
            return
        if request.arguments:
            for number, formal in enumerate(formals):
                yield self._read(self._word(request.arguments + _WORD * number), formal.size)
            return
        at = self._buffer(request.extra)
        for formal in formals:
            at = -(-at // formal.alignment) * formal.alignment
            yield self._read(at, formal.size)
            at += formal.size

    def _buffer(self, extra: int) -> int:
        """Where all parameters lie that are given as one piece of memory."""
        while extra:
            kind, value = self._word(extra), self._word(extra + _WORD)
            if kind == _BUFFER:
                return value
            if kind == _END:
                break
            extra += 2 * _WORD
        raise CudaError(Number.INVALID_VALUE)

    def _word(self, place: int) -> int:
        return int.from_bytes(self._read(place, _WORD), "little")

    def _contents(self, one: Allocation) -> bytes | None:
        return self._memory.contents(one, self._read)

    def _variables(
        self, kernel: Kernel, described: Described[Allocation]
    ) -> Iterator[tuple[str, Contents | None]]:
        touched = self._modules.of(kernel.loaded)
        names = flatten(kernel.loaded.module, kernel.entry).variables if touched else ()
        for variable in touched:
            one = self._memory.at(variable.address)
            if variable.name in names and one is not None:
                yield variable.name, described.contents(variable.name, one)

    def _ran(self, kernel: Kernel, used: Sequence[Allocation]) -> None:
        """What the kernel may have written is not known any more."""
        spaces = {v.name: v.space for v in kernel.loaded.module.variables}
        constant = set()
        own = []
        for variable in self._modules.of(kernel.loaded):
            one = self._memory.at(variable.address)
            if one is not None:
                own.append(one)
                if spaces.get(variable.name) == "const":
                    constant.add(one.base)
        for one in self._memory.reachable([*used, *own], self._read):
            if one.kind == DEVICE and one.base not in constant:
                one.forget()


def _accepted(kernel: Kernel, request: Request) -> Triple:
    """The cluster; raises what a launch of this kind gives on a GPU."""
    threads = prod(request.block)
    if not all(1 <= n <= most for n, most in zip(request.grid, _GRID, strict=True)):
        raise CudaError(Number.INVALID_CONFIGURATION)
    if not 1 <= threads <= devices.CTA_THREADS:
        raise CudaError(Number.INVALID_CONFIGURATION)
    if threads > kernel.threads:
        raise CudaError(Number.NO_RESOURCES)
    if request.shared > kernel.most_dynamic:
        raise CudaError(Number.INVALID_VALUE)
    cluster = request.cluster
    if cluster == UNSAID:
        if "explicitcluster" in kernel.entry.directives and not any(kernel.cluster):
            raise CudaError(Number.INVALID_CLUSTER)  # PTX 11.7.2
        cluster = kernel.cluster if any(kernel.cluster) else (1, 1, 1)
    most = _LARGEST_CLUSTER if kernel.nonportable else _PORTABLE
    whole = all(c and n % c == 0 for n, c in zip(request.grid, cluster, strict=True))
    if not whole or prod(cluster) > most or (any(kernel.cluster) and cluster != kernel.cluster):
        raise CudaError(Number.INVALID_CLUSTER)
    return cluster
