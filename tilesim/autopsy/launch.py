"""The launch of a kernel, rebuilt from a dump: what its PTX is checked with.

Grid, block, cluster and the bytes of the parameters stand in the dump; the rest is derived, or
taken for granted, and each of that has a name (`Assumed`). A number of 64 bits is taken to be an
address if the PTX says so (``.ptr``, ``cvta.to.global``) or if it looks like those that the dump
knows. How large a buffer is, no dump says: unless a tensor map says how far its tensor reaches, it
is taken to be larger than anything that the kernel accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import count
from math import prod

from tilesim.autopsy.core_dump import CoreDump, Cta, Grid, dimensions
from tilesim.autopsy.find_ptx import FoundPtx, Loaded, Missing, reserved
from tilesim.ptx.demangle import readable
from tilesim.ptx.inline import Kernel, flatten
from tilesim.ptx.launch import UNSAID, Contents, Launch, Map, Parameter, Pointer, Struct
from tilesim.ptx.parameters import Described
from tilesim.ptx.syntax import Address, Function, LaunchError, Name, PtxError, Vector
from tilesim.ptx.tensormap import SIZE as MAP_SIZE
from tilesim.ptx.tensormap import address, decode, encode
from tilesim.records import dataclass, field, replace

#: bytes that a buffer is taken to have of which the dump does not say that: as many as may be
ASSUMED_BYTES = 16 << 30
#: the same of a buffer that steers the kernel, of which a run keeps what it holds
ASSUMED_HELD = 64 << 20
#: what a small buffer holds is given, of one with more bytes only the beginning
MOST_CONTENTS = 16 << 10
#: where device addresses begin and end (49 bits on Hopper, 57 on Blackwell)
_LEAST, _MOST = 1 << 32, 1 << 57
#: by which bits addresses are told from other numbers: a process has its allocations near to each
#: other, at large numbers
_ALLOCATION_BITS = 40
#: shared memory is given out in units, and so are the registers of a thread (I2): of 255, which is
#: the most that ptxas uses, a kernel has 256
_UNIT, _REGISTERS, _MOST_REGISTERS = 128, 8, 256
_POINTER = 8
#: of a tensor map: the bit from which the promotion of cache lines stands, and the bytes that
#: describe it (the others repeat parts of them)
_PROMOTION, _DESCRIBING = 81, 64


@dataclass(frozen=True)
class Assumed:
    """Something about the launch that the dump does not say, by ``name``, and what was taken for
    it."""

    name: str
    text: str


@dataclass(frozen=True)
class Rebuilt:
    """A launch as the dump has it. ``assumed``: what the dump does not say; ``addresses``: where
    its buffers lie, by name."""

    launch: Launch
    assumed: tuple[Assumed, ...]
    addresses: Mapping[str, int] = field(default_factory=dict, repr=False)


def rebuild(
    dump: CoreDump, grid: Grid, kernel: Loaded, ptx: FoundPtx, *, dependent: bool = False
) -> Rebuilt | Missing:
    """The launch ``grid`` of a dump, for the PTX of its kernel.

    ``dependent``: a warp of it is known to wait for the grid before it.
    """
    entry = ptx.entry
    if grid.params is None and entry.params:
        return Missing(
            "the bytes of the kernel's parameters are not in the dump: its launch is not known"
        )
    if len(kernel.info.parameters) != len(entry.params):
        return Missing(
            f"the PTX has {len(entry.params)} parameters, and the cubin in the dump names "
            f"{len(kernel.info.parameters)}"
        )
    try:
        flat = flatten(ptx.module, entry)
    except PtxError as error:
        return Missing(str(error))
    data = grid.params or b""
    where = [(p.offset, p.size) for p in kernel.info.parameters]
    if where and where[-1][0] + where[-1][1] > len(data):
        need = where[-1][0] + where[-1][1]
        return Missing(f"the parameters take {need} bytes, and the dump has {len(data)} of them")
    memory = _Memory(dump, grid)
    for (at, size), formal in zip(where, entry.params, strict=True):
        if formal.shape:
            memory.add_maps(data[at : at + size])
    for at in _used_as_addresses(entry, where):
        memory.add(int.from_bytes(data[at : at + _POINTER], "little"))
    described = Described(memory, is_map, lambda piece: None)
    params = [
        described.parameter(number, formal, data[at : at + size])
        for number, (formal, (at, size)) in enumerate(zip(entry.params, where, strict=True))
    ]
    ctas = [cta for cta in dump.ctas if cta.grid is grid]
    dynamic, shared = _dynamic_shared(ctas, kernel, flat)
    absent, assumed = dump.absent(grid), [*shared]
    all_run = not any(absent) and grid.ctas > (prod(grid.cluster) or 1)
    if grid.at_least:
        text = (
            "the dump has a grid of 1, as drivers write of cooperative launches, and more CTAs "
            f"run: {dimensions(grid.grid)}, the smallest grid with all of them (cooperative)"
        )
        assumed.append(Assumed("grid", text))
    elif all_run:
        text = f"all {grid.ctas} CTAs are running, so they are taken to run at once (cooperative)"
        assumed.append(Assumed("residency", text))
    elif absent.unknown:
        text = (
            f"{len(ctas)} of {grid.ctas} CTAs are running: whether the others have ended or have "
            "not begun is not in the dump"
        )
        assumed.append(Assumed("residency", text))
    if not dependent and "griddepcontrol" in {step.base for step in flat.code}:
        text = "whether it was launched as dependent on the kernel before is not in the dump: no"
        assumed.append(Assumed("dependent", text))
    kept = sorted(name for name, v in flat.variables.items() if v.space in ("global", "const"))
    if kept:
        names = ", ".join(map(readable, kept[:4]))
        text = f"variables of the module ({names}) are taken to hold what their initialisers say"
        assumed.append(Assumed("variables", text))
    open_ = sorted({p.name for p in pointers(params) if p.bytes is None})
    if open_:
        what = f"{', '.join(open_)} {'is' if len(open_) == 1 else 'are'}"
        text = (
            f"how large {what} is not in the dump: larger than anything that the kernel accesses"
            f"{', and apart from each other' if len(open_) > 1 else ''}"
        )
        assumed.append(Assumed("buffer sizes", text))
    launch = Launch(
        entry.name, grid.grid, grid.block, grid.cluster if all(grid.cluster) else UNSAID, dynamic,
        _registers(grid.registers, entry.directives.get("maxnreg")),
        cooperative=all_run or grid.at_least, dependent=dependent,
        params=_changed(params, _sized), about=f"as in {dump.path.name}",
    )  # fmt: skip
    return Rebuilt(launch, tuple(assumed), dict(_addresses(params, where, data)))


def _registers(given: int, declared: Sequence[int] | None) -> int | None:
    """Registers of a thread, of those that it is ``given``: what is ``declared``, if that many are
    given in units. A number that no GPU gives stays as it is, for the check to refuse."""
    if given > _MOST_REGISTERS:
        return given
    registers = -(-given // _REGISTERS) * _REGISTERS
    return min(registers, declared[0]) if declared else registers or None


# ---------------------------------------------------------------------- memory


@dataclass(frozen=True)
class _Piece:
    """A buffer, from its lowest known address on."""

    base: int
    size: int | None = None


class _Memory:
    """What is known of the buffers of a launch."""

    def __init__(self, dump: CoreDump, grid: Grid) -> None:
        known = [grid.entry, *(one.address for one in dump.memory)]
        self._near = {address >> _ALLOCATION_BITS for address in known}
        self._pieces: dict[int, _Piece] = {}

    def add(self, start: int, size: int | None = None) -> None:
        """A buffer begins there, unless that lies in one that is known."""
        if self._inside(start) is None and _LEAST <= start < _MOST:
            self._pieces[start] = _Piece(start, size)
            self._near.add(start >> _ALLOCATION_BITS)

    def add_maps(self, data: bytes) -> None:
        """The tensors of the maps in the bytes of a parameter."""
        for at in range(0, len(data) - MAP_SIZE + 1, 64):
            one = data[at : at + MAP_SIZE]
            if is_map(one):
                self._add_tensor(address(one), extent(decode(one, "")))

    def _add_tensor(self, start: int, size: int) -> None:
        inside = self._inside(start)
        if inside is None or inside.size is None:
            self._pieces[start] = _Piece(start, size)
        elif inside.base == start:
            self._pieces[start] = _Piece(start, max(size, inside.size))
        self._near.add(start >> _ALLOCATION_BITS)

    def _inside(self, start: int) -> _Piece | None:
        exact = self._pieces.get(start)
        if exact is not None:
            return exact
        return next(
            (one for one in self._pieces.values() if 0 <= start - one.base < (one.size or 0)), None
        )

    def at(self, address: int) -> _Piece | None:
        """The buffer that an address points into; None if the number is taken to be no address."""
        found = self._inside(address)
        if (
            found is None
            and address >> _ALLOCATION_BITS
            and address >> _ALLOCATION_BITS in self._near
        ):
            found = self._pieces[address] = _Piece(address)
        return found

    def addresses_in(self, data: bytes) -> Mapping[int, tuple[_Piece, int]]:
        """No word of memory is taken to be an address."""
        return {}


def is_map(data: bytes) -> bool:
    """Whether these are the bytes of a tensor map: the driver would write the same again."""
    if len(data) != MAP_SIZE:
        return False
    start, promotion = address(data), int.from_bytes(data, "little") >> _PROMOTION & 3
    if not _LEAST <= start < _MOST:
        return False
    try:
        made = encode(replace(decode(data, ""), atoms=16), start, promotion)
    except LaunchError:
        return False
    return made[:_DESCRIBING] == data[:_DESCRIBING]


def extent(value: Map) -> int:
    """Bytes from a tensor's first element to the end of its last one."""
    rows = zip(value.shape[1:], value.strides, strict=True)
    return -(-value.shape[0] * value.bits // 8) + sum((n - 1) * stride for n, stride in rows)


def _used_as_addresses(entry: Function, where: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The places of parameters that the PTX says are addresses, or that it uses as such."""
    starts = {f.name: at for f, (at, _) in zip(entry.params, where, strict=True)}
    for formal in entry.params:
        if formal.pointer is not None:
            yield starts[formal.name]
    loaded: dict[str, int] = {}
    for step in entry.body.code if entry.body else ():
        match step.base, step.operands:
            case "ld", (to, Address(Name(text), offset)) if text in starts:
                into = to.items if isinstance(to, Vector) else (to,)
                for number, one in enumerate(into):
                    if isinstance(one, Name):
                        loaded[one.text] = starts[text] + offset + _POINTER * number
            case "cvta", (Name(to), Name(text)) if text in loaded:
                loaded[to] = loaded[text]
                if "global" in step.qualifiers:
                    yield loaded[text]
            case (("mov" | "add" | "sub" | "mad"), (Name(to), *values)):
                # a sum of one of them and something else; what is multiplied is no address
                sums = values[-1:] if step.base == "mad" else values
                of = {loaded[v.text] for v in sums if isinstance(v, Name) and v.text in loaded}
                loaded.pop(to, None)
                if len(of) == 1:
                    loaded[to] = of.pop()
            case _:
                for operand in step.operands:
                    match operand:
                        case Address(Name(text)) if text in loaded:
                            yield loaded[text]
                        case _:
                            pass
                match step.operands:
                    case (Name(to), *_):
                        loaded.pop(to, None)
                    case _:
                        pass


# ---------------------------------------------------------------------- buffers


def pointers(params: Iterable[Parameter]) -> Iterator[Pointer]:
    """The pointers among parameters, those inside of structs too."""
    for one in params:
        match one:
            case Pointer():
                yield one
            case Struct():
                yield from pointers(field.value for field in one.fields)
            case _:
                pass


def _changed(
    params: Iterable[Parameter], change: Callable[[Pointer | Map], Pointer | Map]
) -> tuple[Parameter, ...]:
    """Parameters with their pointers and maps changed, those inside of structs too."""
    return tuple(_changed_one(one, change) for one in params)


def _changed_one(one: Parameter, change: Callable[[Pointer | Map], Pointer | Map]) -> Parameter:
    match one:
        case Pointer() | Map():
            return change(one)
        case Struct():
            fields = (replace(f, value=_changed_one(f.value, change)) for f in one.fields)
            return replace(one, fields=tuple(fields))
        case _:
            return one


def _sized(one: Pointer | Map) -> Pointer | Map:
    """A buffer with a size, which is taken for granted if it is not known."""
    if isinstance(one, Pointer) and one.bytes is None:
        return replace(one, bytes=ASSUMED_BYTES)
    return one


def _addresses(
    params: Iterable[Parameter], where: Iterable[tuple[int, int]], data: bytes
) -> Iterator[tuple[str, int]]:
    """Where the buffers of pointers and maps lie, by their names."""
    for one, (at, _) in zip(params, where, strict=True):
        match one:
            case Pointer() | Map():
                address = int.from_bytes(data[at : at + _POINTER], "little")
                yield one.name, address - one.offset
            case Struct():
                inner = ((at + field.offset, 0) for field in one.fields)
                yield from _addresses([field.value for field in one.fields], inner, data)
            case _:
                pass


def _dynamic_shared(
    ctas: Sequence[Cta], kernel: Loaded, flat: Kernel
) -> tuple[int, tuple[Assumed, ...]]:
    """Bytes of dynamic shared memory. A CTA is given shared memory in units, so its static and
    dynamic memory together may be smaller."""
    total = next((n for cta in ctas if (n := cta.shared_bytes) is not None), None)
    open_ = any(at >= flat.shared_size for at in flat.shared.values())
    if total is None:
        text = "how much dynamic shared memory it has is not in the dump: none"
        return 0, (Assumed("dynamic shared memory", text),) if open_ else ()
    left = max(0, total - reserved(kernel.image.arch) - flat.shared_size)
    if left < _UNIT and not open_:
        return 0, ()
    text = (
        f"its dynamic shared memory has {max(0, left - _UNIT + 1)} to {left} bytes, as GPUs give "
        f"it out in units of {_UNIT}: {left}"
    )
    return left, (Assumed("dynamic shared memory", text),)


def with_contents(
    rebuilt: Rebuilt, dump: CoreDump, written: Set[str], steers: Callable[[str], bool]
) -> Rebuilt:
    """The launch with what its buffers hold in the dump, of those that the kernel never writes
    (``written`` names the others): they hold it since the kernel has begun. ``steers``: what a
    buffer holds steers the kernel."""
    launch, found = rebuilt.launch, dict[str, Contents]()
    large = {p.name for p in pointers(launch.params) if p.bytes == ASSUMED_BYTES and steers(p.name)}
    for name, start in rebuilt.addresses.items():
        data = b"" if name in written or not steers(name) else _contents_at(dump, start)
        if data:
            words = (data[at : at + 4] for at in range(0, len(data) - 3, 4))
            found[name] = Contents("u32", tuple(int.from_bytes(w, "little") for w in words))
    if not found and not large:
        return rebuilt

    def given(one: Pointer | Map) -> Pointer | Map:
        if isinstance(one, Pointer) and one.name in large:
            one = replace(one, bytes=ASSUMED_HELD)
        return _given(one, found)

    assumed = rebuilt.assumed
    if found:
        text = (
            f"{', '.join(sorted(found))} held at the start what the dump has: this kernel never "
            "writes to it"
        )
        assumed = (*assumed, Assumed("contents", text))
    params = _changed(launch.params, given)
    return replace(rebuilt, launch=replace(launch, params=params), assumed=assumed)


def with_maps_apart(rebuilt: Rebuilt) -> Rebuilt:
    """The launch with a buffer for each tensor map, where maps see one buffer in different ways,
    which no launch description can say."""
    numbers = count(1)

    def apart(one: Pointer | Map) -> Pointer | Map:
        is_map = isinstance(one, Map)
        return replace(one, name=f"map{next(numbers)}", offset=0) if is_map else one

    params = _changed(rebuilt.launch.params, apart)
    text = "tensor maps that describe one buffer differently are taken to have several buffers"
    return replace(
        rebuilt,
        launch=replace(rebuilt.launch, params=params),
        assumed=(*rebuilt.assumed, Assumed("maps", text)),
    )


def with_zeros(rebuilt: Rebuilt) -> Rebuilt:
    """The launch with zeros at the beginning of the buffers of which nothing is known: the flags,
    counters and locks that kernels wait for begin so, most often."""
    zeros = Contents("u32", (0,) * (MOST_CONTENTS // 4))
    bare = sorted({p.name for p in pointers(rebuilt.launch.params) if p.contents is None})
    found = dict.fromkeys(bare, zeros)
    params = _changed(rebuilt.launch.params, lambda one: _given(one, found))
    text = f"what {', '.join(bare)} held at the start is not in the dump: zeros"
    return replace(
        rebuilt,
        launch=replace(rebuilt.launch, params=params),
        assumed=(*rebuilt.assumed, Assumed("contents", text)),
    )


def _contents_at(dump: CoreDump, start: int) -> bytes:
    """What global memory holds from an address on, as far as it is in the dump."""
    for memory in dump.memory:
        at = start - memory.address
        if 0 <= at < len(memory.data):
            return bytes(memory.data[at : at + MOST_CONTENTS])
    return b""


def _given(one: Pointer | Map, found: Mapping[str, Contents]) -> Pointer | Map:
    """A buffer with its contents, if it has a name of those found."""
    if not isinstance(one, Pointer) or one.name not in found:
        return one
    values = found[one.name].values
    room = len(values) if one.bytes is None else one.bytes // 4
    return replace(one, contents=replace(found[one.name], values=values[:room]))
