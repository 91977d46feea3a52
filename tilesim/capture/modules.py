"""What a program has loaded: modules, and functions and variables by what it calls them with."""

from __future__ import annotations

from functools import cached_property
from math import prod

from tilesim.capture import devices
from tilesim.capture.errors import CudaError, Number
from tilesim.cubin import fatbin
from tilesim.cubin.errors import CubinError
from tilesim.cubin.fatbin import FatbinError
from tilesim.cubin.image import Image
from tilesim.findings.source_names import parameter_names
from tilesim.ptx.demangle import readable
from tilesim.ptx.inline import flatten
from tilesim.ptx.parser import read
from tilesim.ptx.syntax import Function, Module
from tilesim.records import dataclass, field


class Loaded:
    """A module: an image of which the PTX is read when it is first needed."""

    def __init__(self, image: bytes, target: str) -> None:
        self._image = image
        self._target = target

    @cached_property
    def text(self) -> str:
        """Its PTX for the target.

        Raises:
            FatbinError: it has none.
        """
        found = list(fatbin.texts(self._image))
        text = fatbin.chosen(found, self._target)
        if text is not None:
            return text
        if not found:
            raise FatbinError(
                "it was compiled to machine code only: add PTX, with "
                f"{fatbin.architecture(self._target)}, and without -rdc=true"
            )
        others = ", ".join(dict.fromkeys(fatbin.targets(found)))
        raise FatbinError(
            f"it has PTX for {others} and none that runs on {self._target}: --target says which "
            "GPU the program is to find"
        )

    def cubin(self, kernel: str) -> bytes:
        """The machine code of a kernel that is beside its PTX; empty if there is none that embeds
        PTX, which is what it can be compared with."""
        try:
            for data in fatbin.cubins(self._image):
                image = Image(data)
                own = image.arch == self._target and image.section(f".text.{kernel}") is not None
                if own and image.ptx is not None:
                    return data
        except (CubinError, FatbinError):
            pass  # the PTX is what is checked
        return b""

    @cached_property
    def module(self) -> Module:
        """It is read once."""
        return read(self.text, "module.ptx")


@dataclass
class Kernel:
    """A function that can be launched, and what the program has set for it."""

    name: str
    loaded: Loaded
    dynamic_shared: int = 0
    nonportable: bool = False

    @cached_property
    def entry(self) -> Function:
        """Its PTX.

        Raises:
            FatbinError: there is none.
        """
        for entry in self.loaded.module.entries:
            if entry.name == self.name:
                return entry
        raise FatbinError(f"its module has no kernel {readable(self.name)}")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What its source calls its parameters, if that is at hand."""
        entry, source = self.entry, self.loaded.module.source_of(self.entry)
        return parameter_names(source, readable(entry.name), len(entry.params))

    @cached_property
    def static_shared(self) -> int:
        """Bytes."""
        return flatten(self.loaded.module, self.entry).shared_size

    @property
    def most_dynamic(self) -> int:
        """Bytes of dynamic shared memory that a launch may ask for."""
        return max(self.dynamic_shared, devices.SHARED_DEFAULT - self.static_shared)

    @property
    def threads(self) -> int:
        """Threads that a CTA may have."""
        says = self.entry.directives
        return prod(says.get("reqntid") or says.get("maxntid") or (devices.CTA_THREADS,))

    @property
    def cluster(self) -> tuple[int, int, int]:
        """What the PTX requires; zeros: nothing."""
        x, y, z = (*self.entry.directives.get("reqnctapercluster", (0, 0, 0)), 1, 1)[:3]
        return (x, y, z)

    @property
    def registers(self) -> int:
        """Registers per thread, as many as the compiler may give; 0: the PTX sets no limit.

        What it does give stands in machine code, which is not read.
        """
        says = self.entry.directives
        if "maxnreg" in says:
            return says["maxnreg"][0]
        if "minnctapersm" in says and ("maxntid" in says or "reqntid" in says):
            share = devices.REGISTERS // (self.threads * says["minnctapersm"][0])
            return min(255, share // 8 * 8)
        return 0

    def resident(self, threads: int, shared: int) -> int:
        """CTAs with so many threads and dynamic shared bytes that a multiprocessor holds."""
        return devices.resident(threads, self.static_shared + shared, self.registers)


@dataclass
class Variable:
    """A variable of a module; ``address`` of the memory that stands for it, 0: none does yet."""

    name: str
    loaded: Loaded
    size: int
    address: int = 0


@dataclass
class Modules:
    """Everything by number or by the address that the program knows it by."""

    target: str
    loaded: dict[int, Loaded] = field(default_factory=dict)
    kernels: dict[int, Kernel] = field(default_factory=dict)
    variables: dict[int, Variable] = field(default_factory=dict)

    def load(self, image: bytes) -> int:
        """The number of a new module."""
        number = len(self.loaded) + 1
        self.loaded[number] = Loaded(image, self.target)
        return number

    def kernel(self, key: int) -> Kernel:
        """What the program calls by a number.

        Raises:
            CudaError: nothing.
        """
        found = self.kernels.get(key)
        if found is None:
            raise CudaError(Number.INVALID_FUNCTION)
        return found

    def of(self, loaded: Loaded) -> list[Variable]:
        """The variables of a module that the program has touched."""
        return [v for v in self.variables.values() if v.loaded is loaded and v.address]
