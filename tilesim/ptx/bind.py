"""A kernel with its launch: declarations of MIR, and the values of its parameters.

Variables outside of shared memory are tensors; a ``.local`` one has a part for every thread of the
grid. So is a parameter of which the place that is loaded is chosen while the kernel runs, by a
``selp`` of two addresses or the index of an array: memory that begins with what the launch passes,
and that is never written (PTX 5.1.6: ``.param`` is read-only). Mostly ``ld.param`` names its place,
and what lies there is known without running anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, pairwise
from math import prod
from operator import add
from typing import cast

from tilesim.arith import types
from tilesim.arith.types import WIDTH
from tilesim.ir.addresses import address_of
from tilesim.ir.checks.declarations import check_maps, check_tensors
from tilesim.ir.checks.launch import check_launch
from tilesim.ir.declarations import GlobalTensor, PackingName, Pointed, SharedTensor, TensorMap
from tilesim.ir.expr import Const, Expr, Special
from tilesim.ir.program import Program
from tilesim.ir.target import TARGETS
from tilesim.ir.tensormap import ADDRESS_BYTES, NBYTES, encoded, fields_of
from tilesim.ptx import grid_workspace
from tilesim.ptx.constants import Constants, naming
from tilesim.ptx.demangle import readable
from tilesim.ptx.inline import Flat, Kernel, Register, Symbol
from tilesim.ptx.launch import (
    UNSAID,
    Contents,
    Launch,
    Map,
    Parameter,
    Pointer,
    Scalar,
    Struct,
    Triple,
    bytes_of,
    contents_of,
    pointers_in,
)
from tilesim.ptx.syntax import Float, Function, Initial, Integer, LaunchError, Variable
from tilesim.records import dataclass, field, replace
from tilesim.wording import did_you_mean


def variable_tensors(
    kernel: Kernel, launch: Launch, taken: frozenset[str]
) -> dict[str, GlobalTensor]:
    """A tensor for each variable that a kernel names; names that are ``taken`` it does not get.

    Raises:
        LaunchError: it is not known how large one is, or the launch says what cannot be.
    """
    given = dict(launch.variables)
    for name in given:
        if name not in kernel.variables:
            hint = did_you_mean(name, kernel.variables)
            there = ", ".join(kernel.variables) or "none"
            raise LaunchError(
                f"variables.{name}: the kernel names no such variable{hint}; it names {there}"
            )
    found: dict[str, GlobalTensor] = {}
    used = set(taken)
    for name, variable in kernel.variables.items():
        if not variable.size:
            raise LaunchError(f"{launch.entry}: nothing says how large the variable {name} is")
        threads = launch.threads * launch.ctas if variable.space == "local" else 1
        plain = readable(name)
        if plain == name:
            plain = re.sub(r"\W", "_", name)
        while plain in used:
            plain += "_"
        used.add(plain)
        size = (_pitch(variable) * threads,)
        contents, pointers = _of_variable(variable, launch).begins
        found[name] = GlobalTensor(
            plain, types.u8, size, contents=contents, pointers=pointers,
            private=variable.space == "local", constant=variable.space == "const",
        )  # fmt: skip
    return found


@dataclass
class _Image:
    """The bytes of a parameter or a variable when the kernel begins; None where one is not known.

    ``wholes``: by place and size, what bytes are together that are no plain number: an address, a
    number that stands for every one of its type (``--for-all``), or a tensor map, which has bytes
    of its own that say nothing with others. ``pointers``: the addresses.
    """

    cells: list[int | None]
    wholes: dict[tuple[int, int], Expr | _Image] = field(default_factory=dict)
    pointers: list[Pointed] = field(default_factory=list)

    @property
    def begins(self) -> tuple[str, tuple[Pointed, ...]]:
        """The bytes up to the first one that is not known, in hexadecimal, and the addresses among
        them, where there are zeros."""
        named = {one.at + n for one in self.pointers for n in range(ADDRESS_BYTES)}
        cells = ((n, 0 if n in named else cell) for n, cell in enumerate(self.cells))
        known = next((n for n, cell in cells if cell is None), len(self.cells))
        data = bytes(cell or 0 for cell in self.cells[:known])
        return data.hex(), tuple(one for one in self.pointers if one.at < known)

    def put(self, at: int, other: _Image) -> None:
        """Something lies at a place of it."""
        self.cells[at : at + len(other.cells)] = other.cells
        self.wholes |= {(at + n, size): value for (n, size), value in other.wholes.items()}
        self.pointers += (replace(one, at=at + one.at) for one in other.pointers)

    def read(self, at: int, nbytes: int) -> Expr | None:
        """Some of the bytes as a number; None if one is not known, or not inside."""
        for (start, size), value in self.wholes.items():
            skipped = at - start
            if skipped < 0 or skipped + nbytes > size:
                continue
            if isinstance(value, _Image):
                return value.read(skipped, nbytes)
            if nbytes == size:
                return value
            if size == ADDRESS_BYTES:
                return value >> 8 * skipped & (1 << 8 * nbytes) - 1
        known = [cell for cell in self.cells[at : at + nbytes] if cell is not None]
        if at < 0 or len(known) < nbytes:
            return None
        return Const(int.from_bytes(bytes(known), "little"))


def _of_address(address: Expr, pointer: Pointed) -> _Image:
    return _Image([None] * ADDRESS_BYTES, {(0, ADDRESS_BYTES): address}, [pointer])


def _of_variable(variable: Variable, launch: Launch) -> _Image:
    """A variable: what the host has put there, or else its initialiser says.

    Raises:
        LaunchError: the launch says more than fits.
    """
    given = dict(launch.variables)
    said = given.get(variable.name)
    data = _initial(variable) if variable.name not in given else b""
    data = data if said is None else contents_of(said)
    if len(data) > variable.size:
        raise LaunchError(
            f"variables.{variable.name}: {len(data)} bytes, the variable has {variable.size}"
        )
    found = _Image([*data])
    for one in pointers_in(said):
        found.put(one.at, _Image([None] * ADDRESS_BYTES, pointers=[replace(one, at=0)]))
    return found


def variable_address(variable: Variable, tensor: GlobalTensor, launch: Launch) -> Expr:
    """Where a variable begins, for the thread that asks."""
    start = address_of(tensor)
    if variable.space != "local":
        return start
    x, y, _ = launch.grid
    cta = Special("cta_x") + x * (Special("cta_y") + y * Special("cta_z"))
    return start + (cta * launch.threads + Special("thread_id")) * _pitch(variable)


def _pitch(variable: Variable) -> int:
    """Bytes from a thread's own variable to the next one's."""
    align = variable.alignment
    return -(-variable.size // align) * align


def _initial(variable: Variable) -> bytes:
    """What a ``.const`` variable holds; nothing if its initialiser does not say all of it."""
    size = max(8, WIDTH[variable.type]) // 8
    cells = tuple(_cells(variable.initial, variable.type))
    known = tuple(cell for cell in cells if cell is not None)
    whole = not _nested(variable.initial) or size * len(known) == variable.size
    if variable.space != "const" or not known or known != cells or not whole:
        return b""
    data = b"".join(cell.to_bytes(size, "little") for cell in known)
    return data.ljust(variable.size, b"\0")[: variable.size]


def _nested(initial: Initial) -> bool:
    """Whether there are lists in a list, which may each leave out what is zero."""
    return isinstance(initial, tuple) and any(isinstance(item, tuple) for item in initial)


def _cells(initial: Initial, kind: str) -> Iterator[int | None]:
    """The elements that an initialiser lists, as bits; None for an address."""
    match initial:
        case tuple():
            for item in initial:
                yield from _cells(item, kind)
        case Integer(value):
            yield value & (1 << WIDTH[kind]) - 1
        case Float(bits, width) if width == WIDTH[kind]:
            yield bits
        case _:
            yield None


def _parameter_tensors(found: Launched, taken: Iterable[str]) -> dict[str, GlobalTensor]:
    """By parameter the memory in which it lies, of those that need it.

    One with a tensor map in it has none: instructions name the map by where it is.
    """
    kernel, launch = found.kernel, found.launch
    chosen = set(_chosen(kernel, Constants(kernel, found.value, launch.sizes)))
    used, tensors = set(taken), dict[str, GlobalTensor]()
    for formal, actual in zip(kernel.entry.params, launch.params, strict=True):
        if formal.name not in chosen or _has_map(actual):
            continue
        name = readable(formal.name)
        while name in used:
            name += "_"
        used.add(name)
        contents, pointers = found.image(formal.name, actual).begins
        tensors[formal.name] = GlobalTensor(
            name, types.u8, (formal.size,), contents=contents, pointers=pointers, constant=True
        )
    return tensors


def _chosen(kernel: Kernel, constants: Constants) -> Iterator[str]:
    """The parameters from whose address one is made of which the text does not say the place."""
    own = {formal.name for formal in kernel.entry.params}
    known: dict[str, str] = {}  #: by register the parameter of which it is a place
    left = [step for step in kernel.code if Symbol in map(type, step.operands[1:])]
    while left:
        target, *sources = left.pop().operands
        named = {name for s in sources if (name := _named(s, known)) in own}
        if not named or not isinstance(target, Register):
            continue
        if constants.parameter(target) is None:
            yield from named
        elif target.name not in known:
            known[target.name] = named.pop()
            left += (kernel.code[number] for number in naming(kernel).numbers[target.name])


def _named(source: Flat, known: Mapping[str, str]) -> str | None:
    """The parameter of whose address an operand is one."""
    match source:
        case Symbol(variable) if variable.space == "param":
            return variable.name
        case Register(name):
            return known.get(name)
        case _:
            return None


def _has_map(actual: Parameter) -> bool:
    fields = actual.fields if isinstance(actual, Struct) else ()
    return isinstance(actual, Map) or any(_has_map(field.value) for field in fields)


#: element types of maps as those of tensors
_ELEMENTS = {
    "u8": types.u8, "u16": types.u16, "u32": types.u32, "s32": types.s32, "u64": types.u64,
    "s64": types.s64, "f16": types.f16, "f32": types.f32, "f32.ftz": types.f32, "f64": types.f64,
    "bf16": types.bf16, "tf32": types.tf32, "tf32.ftz": types.tf32,
}  # fmt: skip
#: threads of a CTA in z, at most
_DEEPEST = 64


@dataclass(frozen=True)
class Launched:
    """``program`` has the declarations, no body; ``maps`` by parameter and offset in it.

    ``variables`` are the tensors of variables, and of parameters that lie in memory. `value` gives
    what ``ld.param`` loads from a place that is known.
    """

    kernel: Kernel
    launch: Launch
    program: Program
    tensors: Mapping[str, GlobalTensor]
    maps: Mapping[tuple[str, int], TensorMap]
    variables: Mapping[str, GlobalTensor]
    #: what CTAs of a cooperative launch wait with for each other, if the kernel asks for it
    workspace: GlobalTensor | None = None
    _images: dict[str, _Image] = field(default_factory=dict, repr=False, compare=False)

    def value(self, name: str, offset: int, nbytes: int) -> Expr | None:
        """What lies at an offset of a parameter; None where that is not known, or not all inside of
        it. A tensor map has the bytes that the simulator gives it."""
        pairs = zip(self.kernel.entry.params, self.launch.params, strict=True)
        if name not in self._images:
            actual = next((actual for formal, actual in pairs if formal.name == name), None)
            self._images[name] = _Image([]) if actual is None else self.image(name, actual)
        return self._images[name].read(offset, nbytes)

    def constant(self, variable: Variable, offset: int, nbytes: int) -> int | None:
        """What bytes of a ``.const`` variable are, as a number; None: not known."""
        found = _of_variable(variable, self.launch).read(offset, nbytes)
        return found.value if isinstance(found, Const) and isinstance(found.value, int) else None

    def image(self, name: str, actual: Parameter, at: int = 0) -> _Image:
        """What lies at a place of a parameter."""
        match actual:
            case Pointer(offset=offset):
                tensor = self.tensors.get(actual.name)
                if tensor is None:  # of a buffer without bytes
                    return _Image([*offset.to_bytes(ADDRESS_BYTES, "little")])
                return _of_address(address_of(tensor) + offset, Pointed(0, actual.name, offset))
            case Scalar(type=kind, value=None):
                return _Image([None] * len(bytes_of(kind, 0)))
            case Scalar(type=kind, value=int() as value) if (
                type(value) is not int and kind[0] in "bus" and value >= 0
            ):
                nbytes = WIDTH[kind] // 8
                return _Image([None] * nbytes, {(0, nbytes): Const(value)})
            case Scalar(type=kind, value=int() | float() as value):
                return _Image([*bytes_of(kind, value)])
            case Map():
                map_ = self.maps[name, at]
                inner = _Image([*encoded(fields_of(map_), 0)[0].tobytes()])
                inner.put(0, _of_address(address_of(map_.tensor), Pointed(0, map_.tensor.name)))
                return _Image([None] * NBYTES, {(0, NBYTES): inner})
            case Struct(size=size, data=data):
                found = _Image([*data, *[None] * (size - len(data))])
                for part in actual.fields:
                    found.put(part.offset, self.image(name, part.value, at + part.offset))
                return found
            case _:
                raise AssertionError(actual)


def launched(kernel: Kernel, launch: Launch, target: str) -> Launched:
    """The kernel with its launch.

    Raises:
        LaunchError: the description contradicts the kernel, or is not supported.
    """
    launch = completed(kernel.entry, launch)
    check(kernel.entry, launch)
    name = target if target in TARGETS else f"{target}a"
    if name not in TARGETS:
        raise LaunchError(
            f"{launch.entry}: .target {target} of the PTX is not supported; use "
            f"{', '.join(TARGETS)}"
        )
    tensors, maps = _globals(kernel.entry, launch)
    own = variable_tensors(kernel, launch, frozenset({*tensors, *kernel.shown.values()}))
    _require_pointed((*tensors.values(), *own.values()))
    taken = frozenset({*tensors, *(t.name for t in own.values()), *kernel.shown.values()})
    word = grid_workspace.tensor(kernel, launch, taken)
    total = kernel.shared_size + launch.dynamic_shared
    if total > (room := TARGETS[name].smem):
        raise LaunchError(
            f"{launch.entry}: dynamic_shared: {launch.dynamic_shared} bytes, and "
            f"{kernel.shared_size} of the kernel's variables, are more than the {room} that a CTA "
            f"of {name} can have"
        )
    shared = tuple(_shared(kernel, total))
    most = _volume(kernel.entry.directives.get("maxnreg"))
    program = Program(
        name=readable(launch.entry), target=TARGETS[name],
        warps=-(-launch.threads // 32), grid=launch.grid, cluster=launch.cluster,
        params=(*tensors.values(), *own.values(), *([word] if word else [])),
        maps=tuple(maps.values()), shared=shared, registers=launch.registers or most,
        cooperative=launch.cooperative,
        smem_bytes=total,
    )  # fmt: skip
    found = Launched(kernel, launch, program, tensors, maps, own, word)
    passed = _parameter_tensors(found, taken)
    if passed:
        program = replace(program, params=(*program.params, *passed.values()))
        found = replace(found, program=program, variables=own | passed)
        _require_pointed((*tensors.values(), *passed.values()))
    _require_launchable(program)
    return found


def _require_launchable(program: Program) -> None:
    """Raises a LaunchError for sizes and tensor maps that no kernel can be launched with."""
    for problem in chain(check_launch(program), check_tensors(program), check_maps(program)):
        fix = f"; {problem.fix}" if problem.fix else ""
        raise LaunchError(f"{program.name}: {problem.message}{fix}")


def _shared(kernel: Kernel, total: int) -> Iterator[SharedTensor]:
    """The variables in shared memory, each up to the next one; dynamic ones to the end."""
    places = sorted(kernel.shared.items(), key=lambda item: item[1])
    ends = [*(offset for _, offset in places), total][1:]
    for (name, offset), end in zip(places, ends, strict=True):
        stop = total if offset >= kernel.shared_size else end
        if stop > offset:
            yield SharedTensor(
                kernel.shown[name], types.u8, (stop - offset,), align=1, offset=offset
            )


# ---------------------------------------------------------------------- global memory


def _every(launch: Launch, entry: Function) -> Iterator[tuple[str, int, Parameter]]:
    """Every parameter with those inside of structs: name of the parameter, offset, value; and the
    buffers that none of them names."""
    for formal, actual in zip(entry.params, launch.params, strict=True):
        yield formal.name, 0, actual
        if isinstance(actual, Struct):
            for field in actual.fields:
                yield formal.name, field.offset, field.value
    for buffer in launch.buffers:
        yield "", 0, buffer


def _globals(
    entry: Function, launch: Launch
) -> tuple[dict[str, GlobalTensor], dict[tuple[str, int], TensorMap]]:
    tensors: dict[str, GlobalTensor] = {}
    maps: dict[tuple[str, int], TensorMap] = {}
    found, wholes = _contents(launch, entry), _whole_buffer_maps(launch, entry)
    for name, offset, value in _every(launch, entry):
        if isinstance(value, Map):
            own = f"{name}+{offset}" if offset else f"{name}.map"
            known = found.get(value.name)
            whole = wholes.get(value.name, value)
            if _is_begun(whole, launch, known):
                begun, known = begun_name(own), None
                value = whole = replace(value, name=begun)
            tensor = tensors.get(value.name)
            if tensor is None:
                tensor = tensors[value.name] = _tensor(whole, launch, known)
            maps[name, offset] = _map(value, tensor, own, _tensor(whole, launch, None))
    for _, _, value in _every(launch, entry):
        if isinstance(value, Pointer) and value.name not in tensors and value.bytes != 0:
            if value.bytes is None:
                raise LaunchError(f"{value.name}: bytes is missing, the size of this buffer")
            known = found.get(value.name)
            tensors[value.name] = GlobalTensor(
                value.name, types.u8, (value.bytes,), dependent=launch.dependent,
                contents=_hexadecimal(known), pointers=tuple(pointers_in(known)),
            )  # fmt: skip
    return tensors, maps


def _whole_buffer_maps(launch: Launch, entry: Function) -> dict[str, Map]:
    """By buffer a map of all that maps of parts of it see, and pointers to it: views of one tensor,
    with the same strides, that begin at different places or have different shapes."""
    values = [value for _, _, value in _every(launch, entry)]
    named: dict[str, list[Map]] = {}
    for value in values:
        if isinstance(value, Map):
            named.setdefault(value.name, []).append(value)
    found: dict[str, Map] = {}
    for name, maps in named.items():
        first = maps[0]
        if not any(m.offset or m.shape != first.shape for m in maps):
            continue
        if any((m.type, m.strides, len(m.shape)) != (first.type, first.strides, len(first.shape))
               or m.type in types.PACKINGS or m.im2col for m in maps):  # fmt: skip
            raise LaunchError(
                f"{name}: maps of parts of a buffer have one type, the same strides and no pixel "
                "boxes; others are not supported"
            )
        shape = [0] * len(first.shape)
        for one in maps:
            ends = map(add, _begins(one), one.shape)
            shape = list(map(max, shape, ends))
        nbytes = max(
            (v.bytes or 0 for v in values if isinstance(v, Pointer) and v.name == name), default=0
        )
        steps = (first.bits // 8, *first.strides)
        if nbytes and all(below % own == 0 for own, below in pairwise((*steps, nbytes))):
            # what pointers see of it: whole rows
            shape = [below // own for own, below in pairwise((*steps, nbytes))]
        found[name] = replace(first, shape=tuple(shape), offset=0)
    return found


def _begins(value: Map) -> tuple[int, ...]:
    """The element of the whole tensor at which a map of a part begins.

    Raises:
        LaunchError: it begins between elements, or has a dimension of one place.
    """
    steps = (value.bits // 8, *value.strides)
    if 0 in steps:
        raise LaunchError(f"{value.name}: a map of a part of a buffer with a stride of 0 bytes")
    left, begins = value.offset, [0] * len(steps)
    for dim in sorted(range(len(steps)), key=steps.__getitem__, reverse=True):
        begins[dim], left = divmod(left, steps[dim])
    if left:
        raise LaunchError(f"{value.name}: the map begins at byte {value.offset}, inside an element")
    return tuple(begins)


def _is_begun(value: Map, launch: Launch, known: Contents | None) -> bool:
    """Whether a map is one that the kernel begins others with, of a buffer that holds more than it
    sees: CUTLASS's grouped products pass maps of the table of their pointers."""
    return known is not None and len(contents_of(known)) > _tensor(value, launch, None).nbytes


def begun_name(map_: str) -> str:
    """What stands for the buffer of such a map, through which nothing is copied."""
    return f"{map_}.begun"


def _require_pointed(tensors: Collection[GlobalTensor]) -> None:
    """Raises a LaunchError for addresses in memory that are of no buffer."""
    sizes = {tensor.name: tensor.nbytes for tensor in tensors}
    for tensor in tensors:
        for one in tensor.pointers:
            where = f"{tensor.name}: its contents have the address of {one.to} at byte {one.at}"
            if one.to not in sizes:
                hint = did_you_mean(one.to, tuple(sizes))
                raise LaunchError(
                    f"{where}, which is not a buffer{hint}; give it, with its bytes, in buffers"
                )
            if one.offset > sizes[one.to]:
                raise LaunchError(f"{where}, byte {one.offset} of it: it has {sizes[one.to]}")


def _hexadecimal(contents: Contents | None) -> str:
    return "" if contents is None else contents_of(contents).hex()


def _contents(launch: Launch, entry: Function) -> dict[str, Contents]:
    """By buffer what it is known to hold, from its first byte on.

    Raises:
        LaunchError: two parameters say different things of one buffer, or more than fits.
    """
    found: dict[str, Contents] = {}
    for _, _, value in _every(launch, entry):
        if not isinstance(value, Pointer) or value.contents is None:
            continue
        data = contents_of(value.contents)
        before = found.setdefault(value.name, value.contents)
        if (contents_of(before), *pointers_in(before)) != (data, *pointers_in(value.contents)):
            raise LaunchError(f"{value.name}: two parameters give different contents")
        if value.bytes is not None and len(data) > value.bytes:
            raise LaunchError(
                f"{value.name}: contents of {len(data)} bytes, the buffer has {value.bytes}"
            )
    return found


def _tensor(value: Map, launch: Launch, contents: Contents | None) -> GlobalTensor:
    shape, element = value.shape, _ELEMENTS.get(value.type, types.u8)
    if value.type in types.PACKINGS:
        if shape[0] * value.bits % 8:
            raise LaunchError(f"{value.name}: {shape[0]} elements of {value.type} end in a byte")
        shape = (shape[0] * value.bits // 8, *shape[1:])
    strides = [1]
    for stride in value.strides:
        if stride % element.bytes:
            raise LaunchError(f"{value.name}: {stride} bytes are not a multiple of an element")
        strides.append(stride // element.bytes)
    return GlobalTensor(
        value.name, element, tuple(reversed(shape)), tuple(reversed(strides)),
        dependent=launch.dependent, contents=_hexadecimal(contents),
        pointers=tuple(pointers_in(contents)),
    )  # fmt: skip


def _map(value: Map, tensor: GlobalTensor, name: str, declared: GlobalTensor) -> TensorMap:
    if value.interleave:
        raise LaunchError(f"{value.name}: maps interleaved are not supported")
    if value.atoms != 16:
        _require_whole_rows(value, tensor)
    if (tensor.dtype, tensor.shape, tensor.strides) != (
        declared.dtype, declared.shape, declared.strides,
    ):  # fmt: skip
        raise LaunchError(
            f"{value.name}: two maps see this buffer with different shapes, which is not supported"
        )
    steps = tuple(reversed(value.element_strides)) or None
    found = TensorMap(
        name, tensor, tuple(reversed(value.box)), value.swizzle, steps, value.fill,
        packing=cast(PackingName, value.type) if value.type in types.PACKINGS else None,
    )  # fmt: skip
    dims = tuple(reversed(value.shape))
    if found.packing is None and (value.offset or dims != tensor.shape):
        found = replace(found, offset=value.offset, dims=dims)
    if value.im2col is None:
        return found
    corners = value.im2col
    return replace(
        found, box=(corners.pixels, corners.channels), lower=tuple(reversed(corners.lower)),
        upper=tuple(reversed(corners.upper)), wide=corners.wide or None,
    )  # fmt: skip


def _require_whole_rows(value: Map, tensor: GlobalTensor) -> None:
    """Copies move whole rows of the swizzle: which of their bytes is where in the row decides what
    a tile holds, and not what is accessed."""
    inner = value.box[0] if value.im2col is None else value.im2col.channels
    if value.swizzle != 128 or inner * value.bits != 8 * value.swizzle:
        raise LaunchError(
            f"{value.name}: a swizzle with atoms of {value.atoms} bytes is supported for rows of "
            "128 bytes only"
        )
    if tensor.contents:
        raise LaunchError(
            f"{value.name}: contents that are copied with atoms of {value.atoms} bytes are not "
            "supported"
        )


# ---------------------------------------------------------------------- contradictions


def completed(entry: Function, launch: Launch) -> Launch:
    """The launch with the block and the cluster that the PTX says where the description does not.

    Raises:
        LaunchError: neither says how many threads a CTA has, or how many CTAs a cluster of a kernel
            that has to be launched with one (PTX 11.7.2).
    """
    block, cluster, says = launch.block, launch.cluster, entry.directives
    if block == UNSAID:
        block = _triple(says.get("reqntid"))
        if block == UNSAID:
            raise LaunchError(f"{launch.entry}: block: give the block: the PTX has no .reqntid")
    if cluster == UNSAID:
        if "explicitcluster" in says and "reqnctapercluster" not in says:
            raise LaunchError(
                f"{launch.entry}: cluster: give the cluster: the PTX has .explicitcluster, and no "
                ".reqnctapercluster"
            )
        cluster = _triple(says.get("reqnctapercluster", (1,)))
    for n, c, axis in zip(launch.grid, cluster, "xyz", strict=True):
        if n % c:
            raise LaunchError(
                f"{launch.entry}: grid: {axis} = {n} is not a multiple of the cluster's {c}"
            )
    return replace(launch, block=block, cluster=cluster)


def _triple(numbers: tuple[int, ...] | None) -> Triple:
    if not numbers:
        return UNSAID
    x, y, z = (*numbers, 1, 1)[:3]
    return (x, y, z)


def check(entry: Function, launch: Launch) -> None:
    """What the kernel says of its launch must be so.

    Raises:
        LaunchError: it is not; the message has both.
    """
    says = entry.directives
    name = entry.name
    if launch.entry != name:
        raise LaunchError(f"entry: the description is for {launch.entry}, the kernel is {name}")
    _same(name, "block", launch.block, says.get("reqntid"), ".reqntid")
    _same(name, "cluster", launch.cluster, says.get("reqnctapercluster"), ".reqnctapercluster")
    for needed in ("reqntid", "reqnctapercluster") if "blocksareclusters" in says else ():
        if needed not in says:  # PTX 11.8.1
            raise LaunchError(
                f"{name}: .blocksareclusters needs .{needed}, which the PTX does not have"
            )
    most = _volume(says.get("maxntid"))
    if most is not None and launch.threads > most:
        raise LaunchError(f"{name}: block: {launch.threads} threads, .maxntid allows {most}")
    if launch.block[2] > _DEEPEST:
        raise LaunchError(f"{name}: block: {launch.block[2]} threads in z, at most {_DEEPEST}")
    ctas, largest = prod(launch.cluster), _volume(says.get("maxclusterrank"))
    if largest is not None and ctas > largest:
        raise LaunchError(f"{name}: cluster: {ctas} CTAs, .maxclusterrank allows {largest}")
    registers = _volume(says.get("maxnreg"))
    if registers is not None and launch.registers is not None and launch.registers > registers:
        raise LaunchError(
            f"{name}: registers: {launch.registers} per thread, .maxnreg allows {registers}"
        )
    if len(entry.params) != len(launch.params):
        raise LaunchError(
            f"{name}: params: the kernel has {len(entry.params)} parameters, the description "
            f"{len(launch.params)}"
        )
    for number, (formal, actual) in enumerate(zip(entry.params, launch.params, strict=True)):
        size = _size(actual)
        if formal.size != size:
            raise LaunchError(
                f"{name}: params[{number}]: parameter {formal.name} has {formal.size} bytes, the "
                f"description gives {size}"
            )
        for inner in actual.fields if isinstance(actual, Struct) else ():
            end = inner.offset + _size(inner.value)
            if end > size:
                raise LaunchError(
                    f"{name}: params[{number}]: the field at byte {inner.offset} ends at byte "
                    f"{end}, the struct has {size}"
                )


def _same(
    name: str, what: str, found: tuple[int, ...], wanted: tuple[int, ...] | None, directive: str
) -> None:
    if wanted is not None and _triple(wanted) != found:
        raise LaunchError(
            f"{name}: {what}: {list(found)} contradicts {directive} {', '.join(map(str, wanted))}"
        )


def _volume(numbers: tuple[int, ...] | None) -> int | None:
    if not numbers:
        return None
    result = 1
    for n in numbers:
        result *= n
    return result


def _size(actual: Parameter) -> int:
    match actual:
        case Pointer():
            return 8
        case Map():
            return 128
        case Scalar(type=kind):
            return max(1, WIDTH[kind] // 8)
        case Struct(size=size):
            return size
