"""PTX in files of machine code: cubins, fatbins, programs and libraries; kernels that have none.

A fatbin has PTX and cubins, each for one target; a program has fatbins. A cubin compiled with
``-lineinfo`` embeds the PTX that it was made of, without comments and positions in the source; the
positions come from its line tables, if nvdisasm is there. Nothing of a file is executed.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path

from tilesim.cubin import fatbin
from tilesim.cubin.errors import CubinError
from tilesim.cubin.image import Image, Symbol
from tilesim.errors import TargetError
from tilesim.files import read_regular
from tilesim.loader.code_kind import Kind, kind_of
from tilesim.ptx.demangle import readable
from tilesim.ptx.parser import read as read_ptx
from tilesim.ptx.syntax import Module, Unsupported, target_of
from tilesim.records import dataclass, field
from tilesim.wording import count

#: bytes of a file at most
MOST_BYTES = 1 << 30
#: which GPU is meant, if a file has code for several: targets and what loads them, the first first
GPUS = {"sm_90a": "an H200", "sm_100a": "a B200", "sm_103a": "a B300"}
#: bytes at the beginning of shared memory that are the system's
RESERVED = 1024
#: registers are given out in units
_REGISTERS = 8
_ELF = b"\x7fELF"
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")


@dataclass(frozen=True)
class EmbeddedPtx:
    """A PTX text in a file of machine code: ``file`` is what reports call it, ``arch`` its target,
    ``kernels`` their names, ``image`` the cubin that embeds it (None: the text stands alone).
    ``about``: why it is this one, if there are several of a kernel."""

    text: str = field(repr=False)
    file: str
    arch: str
    kernels: tuple[str, ...]
    image: Image | None = field(default=None, repr=False)
    about: str = field(default="", compare=False)

    def module(self, kernel: str) -> Module:
        """What the text says, for a kernel of it; of a cubin's text the kernel has positions in the
        source, if nvdisasm is there to read the cubin's tables. Reports show lines of the text from
        now on.

        Raises:
            PtxError: it is no PTX.
        """
        return _module(self, kernel)

    def show_lines(self) -> None:
        """From now on reports show lines of the text, which is in no file."""
        lines = self.text.splitlines(keepends=True)
        linecache.cache[self.file] = (len(self.text), None, lines, self.file)


@lru_cache(maxsize=1)
def _module(ptx: EmbeddedPtx, kernel: str) -> Module:
    ptx.show_lines()
    module = read_ptx(ptx.text, ptx.file)
    symbol = None if ptx.image is None else symbol_of(ptx.image, kernel)
    if ptx.image is None or symbol is None:
        return module
    # only cubins that embed PTX need it
    from tilesim.autopsy.ptx_lines import with_positions
    from tilesim.cubin.disassembly import disassemble

    try:
        (code,) = disassemble(ptx.image, (symbol,))
    except CubinError:
        return module
    return with_positions(module, kernel, ptx.text, code)


@dataclass(frozen=True)
class ClosedKernel:
    """A kernel of which there is machine code only; ``place`` is its file, ``others`` are how many
    more there are in it for which it stands."""

    place: str
    image: Image = field(repr=False)
    symbol: Symbol
    others: int = 0

    @property
    def name(self) -> str:
        """Its name, as the linker knows it."""
        return self.symbol.name

    @property
    def target(self) -> str:
        """What it was compiled for, such as sm_90a."""
        return self.image.arch

    def unsupported(self) -> Unsupported:
        """That it cannot be checked, what is known of it, and what to do.

        Raises:
            TargetError: what ptxas has written down of it is damaged.
        """
        try:
            known = ", ".join(_known(self.image, self.symbol))
        except CubinError as error:
            raise TargetError(str(error)) from error
        others = f" and {count(self.others, 'other kernel')}" if self.others else ""
        first = f"{readable(self.name)} has" if self.others else "it has"
        return Unsupported(
            self.place, 1, 1,
            f"there is no PTX of {readable(self.name)}{others}, and of machine code alone nothing "
            f"is proved; {first} {known}",
            f"compile with -lineinfo, or with PTX ({fatbin.architecture()}); `tilesim capture "
            "--ptxas` keeps the PTX that a build makes; `tilesim show` lists the barriers in the "
            "machine code; of a hang `tilesim autopsy` reads a dump",
        )  # fmt: skip


def _known(image: Image, symbol: Symbol) -> Iterator[str]:
    """What is written down of a kernel, and which barriers its code has, in words."""
    info = image.info(symbol)
    sizes = ", ".join(str(one.size) for one in info.parameters)
    yield f"code for {image.arch}"
    yield f"{count(len(info.parameters), 'parameter')}{f' of {sizes} bytes' if sizes else ''}"
    if info.block is not None:
        yield f"blocks of {'x'.join(map(str, info.block))} threads"
    elif info.most_threads is not None:
        yield f"blocks of at most {'x'.join(map(str, info.most_threads))} threads"
    if info.cluster is not None:
        yield f"clusters of {'x'.join(map(str, info.cluster))} CTAs"
    if info.registers is not None:
        yield count(info.registers, "register")
    yield f"{count(max(0, info.shared - RESERVED), 'byte')} of static shared memory"
    if info.mbarriers:
        yield count(info.mbarriers, "mbarrier")
    if info.named_barriers:
        yield count(info.named_barriers, "named barrier")


@dataclass(frozen=True)
class MachineCode:
    """A file of machine code: what it is, and the PTX that stands in it beside cubins."""

    path: Path
    kind: Kind
    texts: tuple[EmbeddedPtx, ...]

    @cached_property
    def images(self) -> tuple[Image, ...]:
        """The cubins in the file.

        Raises:
            TargetError: it cannot be read, or is damaged.
        """
        return tuple(each_image(self.path))

    @cached_property
    def embedded(self) -> tuple[EmbeddedPtx, ...]:
        """The PTX that its cubins embed; raises like `images`."""
        found = []
        for number, image in enumerate(self.images, 1):
            try:
                text = image.ptx
            except CubinError as error:
                raise TargetError(str(error)) from error
            if text:
                name = f"{self.path}.ptx"
                if self.kind != "cubin":
                    name = f"{self.path}.cubin.{number}.{image.arch}.ptx"
                found.append(_embedded(text, name, image))
        return tuple(found)

    @property
    def with_ptx(self) -> tuple[str, ...]:
        """The kernels of which there is PTX, each once; raises like `images`."""
        every = self.texts if self.texts else self.embedded
        return tuple(dict.fromkeys(name for text in every for name in text.kernels))

    @property
    def kernels(self) -> tuple[str, ...]:
        """All its kernels, each once; raises like `images`."""
        code = (one.name for image in self.images for one in kernels_of(image))
        return tuple(dict.fromkeys((*self.with_ptx, *code)))

    def ptx(self, kernel: str, arch: str | None = None) -> EmbeddedPtx | None:
        """The PTX of a kernel that the GPU of an ``arch`` loads, else the first of `GPUS` for which
        there is some; None if there is none at all.

        Raises:
            TargetError: there is none for this GPU; else like `images`.
        """
        found = [text for text in self.texts if kernel in text.kernels]
        found = found or [text for text in self.embedded if kernel in text.kernels]
        if not found:
            return None
        targets = tuple(dict.fromkeys(text.arch for text in found))
        wanted = (arch,) if arch is not None else (*GPUS,)
        for gpu in wanted:
            text = fatbin.chosen([one.text for one in found], gpu)
            one = next((one for one in found if one.text is text), None)
            if one is not None:
                return _because(one, gpu, targets)
        if arch is not None:
            raise TargetError(
                f"{self.path}: the PTX of {readable(kernel)} is for {', '.join(targets)}, and none "
                f"of it runs on {arch}"
            )
        return found[0]

    def image_of(self, kernel: str, arch: str) -> tuple[Image, Symbol] | None:
        """The cubin of a kernel for a target; raises like `images`."""
        for image in self.images:
            symbol = symbol_of(image, kernel) if image.arch == arch else None
            if symbol is not None:
                return image, symbol
        return None

    def registers(self, kernel: str, ptx: EmbeddedPtx) -> int | None:
        """Registers of a thread, as ptxas has chosen them for the target of the PTX, in the units
        of 8 in which a GPU gives them; None: there is no such cubin. Raises like `images`."""
        found = self.image_of(kernel, ptx.arch)
        if found is None:
            return None
        image, symbol = found
        try:
            chosen = image.info(symbol).registers
        except CubinError as error:
            raise TargetError(str(error)) from error
        return -(-chosen // _REGISTERS) * _REGISTERS if chosen else None

    def closed(self, name: str | None = None) -> Iterator[ClosedKernel]:
        """The kernels without PTX, or the one of a ``name``, each for the first of `GPUS` that its
        file has; raises like `images`."""
        open_ = frozenset(self.with_ptx)
        found: dict[str, ClosedKernel] = {}
        order = {arch: number for number, arch in enumerate(GPUS)}
        for image in sorted(self.images, key=lambda one: order.get(one.arch, len(order))):
            for symbol in kernels_of(image):
                called = symbol.name, readable(symbol.name)
                if symbol.name not in open_ and (name is None or name in called):
                    found.setdefault(symbol.name, ClosedKernel(str(self.path), image, symbol))
        yield from found.values()


def _because(one: EmbeddedPtx, gpu: str, targets: Iterable[str]) -> EmbeddedPtx:
    others = [target for target in targets if target != one.arch]
    if not others:
        return one
    loads = GPUS.get(gpu, gpu)
    about = f"the PTX is that for {one.arch}, which {loads} loads; it is also there for "
    return EmbeddedPtx(
        one.text, one.file, one.arch, one.kernels, one.image, about + ", ".join(others)
    )


def kernels_of(image: Image) -> tuple[Symbol, ...]:
    """The functions of a cubin that can be launched: those with constants of their own.

    Raises:
        TargetError: the cubin is damaged.
    """
    try:
        return tuple(one for one in image.functions if _is_kernel(image, one))
    except CubinError as error:
        raise TargetError(str(error)) from error


def _is_kernel(image: Image, one: Symbol) -> bool:
    return image.section(f".nv.constant0.{one.name}") is not None


def symbol_of(image: Image, kernel: str) -> Symbol | None:
    """The kernel of a name in a cubin; raises like `kernels_of`."""
    return next((one for one in kernels_of(image) if one.name == kernel), None)


def each_image(path: Path) -> Iterator[Image]:
    """The cubins in a file of machine code, one after the other: a library may hold more than fits
    into memory.

    Raises:
        TargetError: it cannot be read, or is damaged.
    """
    data = _bytes(path)
    kind = kind_of(path)
    if kind == "cubin":
        yield _image(data, str(path))
        return
    try:
        inside = fatbin.cubins(data) if kind == "fatbin" else _of_program(data)
        for number, one in enumerate(inside, 1):
            yield _image(one, f"{path}: cubin {number}")
    except fatbin.FatbinError as error:
        raise TargetError(f"{path}: {error}") from error


def read(path: Path) -> MachineCode:
    """What a file of machine code has.

    Raises:
        TargetError: it cannot be read, is damaged, or is none.
    """
    try:
        about = path.stat()
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}") from error
    return _read(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=1)
def _read(path: Path, _changed: int, _size: int) -> MachineCode:
    kind = kind_of(path)
    if kind is None:
        raise TargetError(f"{path} is not machine code")
    if kind == "dump":
        raise TargetError(f"{path} is a core dump, which has its launches itself: tilesim check")
    data = _bytes(path)
    if kind == "cubin":
        _image(data, str(path))
        return MachineCode(path, kind, ())
    try:
        inside = fatbin.texts(data) if kind == "fatbin" else fatbin.texts_of_program(data)
        texts = [_numbered(path, number, text) for number, text in enumerate(inside, 1)]
    except fatbin.FatbinError as error:
        raise TargetError(f"{path}: {error}") from error
    return MachineCode(path, kind, tuple(one for one in texts if one.kernels))


def _numbered(path: Path, number: int, text: str) -> EmbeddedPtx:
    return _embedded(text, f"{path}.{number}.{target_of(text) or 'unknown'}.ptx")


def _embedded(text: str, file: str, image: Image | None = None) -> EmbeddedPtx:
    kernels = tuple(dict.fromkeys(_ENTRY.findall(text)))
    return EmbeddedPtx(text, file, target_of(text) or "unknown", kernels, image)


def _bytes(path: Path) -> bytes:
    try:
        return read_regular(path, MOST_BYTES)
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}") from error


def _image(data: bytes, name: str) -> Image:
    try:
        return Image(data, name)
    except CubinError as error:
        raise TargetError(str(error)) from error


def _of_program(data: bytes) -> Iterator[bytes]:
    """The cubins of a program, but for device code that is to be linked."""
    for one in fatbin.cubins_of_program(data):
        if one.startswith(_ELF):
            yield one
