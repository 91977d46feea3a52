"""Core dumps made from what they are to hold: what a driver of a release writes for a state.

`Dump` says what is on the devices; `Dump.to_bytes` is the file. The rows are as long as those of
the driver's release (`Dump.release`), so an older one lacks what that driver lacks. What is not
given has the values that are usual. `Section` s can be changed on their way into the file
(``change``), by which malformed dumps are made.

The format is published in ``cudacoredump.h`` of cuda-gdb.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tilesim.autopsy import core_dump
from tilesim.autopsy.core_dump import SCOPES, SKIPPED, STATES, STATUSES, CoreDump
from tilesim.records import dataclass, field

Triple = tuple[int, int, int]
NONE: Triple = (0, 0, 0)


@dataclass(frozen=True)
class Lane:
    """A thread that has not ended. ``state`` is its scheduling (1: ready, 6: waits for lanes)."""

    number: int
    pc: int
    thread: Triple
    registers: Sequence[int] = ()
    predicates: Sequence[bool] = (False,) * 8
    exception: int = 0
    state: int = 1


@dataclass(frozen=True)
class Warp:
    """A warp with lanes that have not ended. ``slot`` is its place on the SM; masks that are not
    given follow from the lanes; ``barrier`` (scope, info) is written by drivers from r590 on."""

    lanes: Sequence[Lane]
    slot: int = 0
    valid: int | None = None
    exited: int | None = None
    collective: int = 0
    broken: bool = False
    uniform_registers: Sequence[int] = (0,) * 63
    uniform_predicates: Sequence[bool] = (False,) * 8
    convergence_barriers: Sequence[int] = (0,) * 16
    barrier: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Cta:
    """A CTA that runs on an SM; ``grid`` is the id of its grid. ``shared`` None: not dumped, and
    ``shared_size`` says how much it was (else as much as ``shared`` has). ``cluster`` is the place
    of its cluster among the clusters of the grid."""

    grid: int
    index: Triple
    warps: Sequence[Warp]
    sm: int = 0
    shared: bytes | None = b""
    cluster: Triple = NONE
    cluster_size: Triple = NONE
    shared_size: int | None = None


@dataclass(frozen=True)
class Grid:
    """A launch. ``module`` is the number of its module in its context; ``status`` 2: it runs."""

    id: int
    entry: int
    grid: Triple
    block: Triple
    cluster: Triple = NONE
    params: bytes | None = b""
    registers: int = 32
    status: int = 2
    context: int = 0
    module: int = 0
    kind: int = 2
    origin: int = 0


@dataclass(frozen=True)
class Module:
    """A cubin that was loaded: as it lies on the device, and as it was given."""

    relocated: bytes
    original: bytes | None = None


@dataclass(frozen=True)
class Sm:
    """What went wrong on an SM."""

    exception: int = 0
    error_pc: int | None = None


@dataclass(frozen=True)
class Device:
    """A GPU with what runs on it: ``contexts`` have modules; ``faults`` is by number of the SM."""

    grids: Sequence[Grid] = ()
    ctas: Sequence[Cta] = ()
    contexts: Sequence[Sequence[Module]] = ((),)
    arch: tuple[int, int] = (9, 0)
    sms: int = 132
    name: str = "NVIDIA H200"
    faults: Mapping[int, Sm] = field(default_factory=dict)


@dataclass(frozen=True)
class Memory:
    """Bytes of global memory that were dumped."""

    address: int
    data: bytes
    managed: bool = False


@dataclass(frozen=True)
class Section:
    """A section on its way into the file: ``link`` is the number of the section above it."""

    name: str
    kind: int
    data: bytes
    link: int = 0
    info: int = 0
    entry: int = 0
    address: int = 0


# rows: the release since which a driver writes a part of it, and the part
_Row = tuple[tuple[int, str], ...]
_DEVICE: _Row = ((0, "3Q12I"), (400, "2I"), (575, "I4x"))
_CONTEXT: _Row = ((0, "4Q2I"),)
_MODULE: _Row = ((0, "Q"),)
_GRID: _Row = ((0, "7Q12I"), (525, "3I4x"), (565, "3I4x"))
_SM: _Row = ((0, "I4x"), (555, "2IQ"), (565, "4I"), (580, "Q"))
_CTA: _Row = ((0, "Q3I4x"), (525, "3I4x"), (565, "3I4x"))
_WARP: _Row = ((0, "Q5I4x"), (525, "I4x"), (570, "I4x"), (575, "4I"), (590, "I4xQ"))
_LANE: _Row = ((0, "2Q8I"), (575, "I4x"), (615, "2I"))
_META: _Row = ((565, "Q6I"),)

_GLOBAL, _SHARED, _REGISTERS, _IMAGE, _RELOCATED, _STACK = 2, 4, 5, 6, 7, 8
_DEVICES, _CONTEXTS, _SMS, _GRIDS, _CTAS, _WARPS, _LANES, _MODULES = 9, 10, 11, 12, 13, 14, 15, 16
_PREDICATES, _PARAMETERS, _UNIFORM, _UNIFORM_PREDICATES = 17, 18, 19, 20
_METADATA, _CONVERGENCE = 22, 23
_STRTAB = 3 - 0x80000000
_HANDLE = 0x5611C1829990


@dataclass(frozen=True)
class Dump:
    """A dump as a driver of ``release`` writes it."""

    devices: Sequence[Device]
    memory: Sequence[Memory] = ()
    release: tuple[int, int] = (580, 159)
    cuda: tuple[int, int] = (13, 0)
    flags: int = 2

    def write(self, path: Path) -> Path:
        """Writes the file; returns its path."""
        path.write_bytes(self.to_bytes())
        return path

    def to_bytes(self, change: Callable[[list[Section]], object] | None = None) -> bytes:
        """The file; ``change`` may change its sections before."""
        sections = self.sections()
        if change is not None:
            change(sections)
        return assemble(sections)

    def sections(self) -> list[Section]:
        """The sections, the empty one first."""
        found = [Section("", -0x80000000, b"")]

        def add(
            name: str, kind: int, data: bytes, link: int = 0, info: int = 0, entry: int = 0,
            address: int = 0,
        ) -> int:  # fmt: skip
            found.append(Section(name, kind, data, link, info, entry, address))
            return len(found) - 1

        strings = b"\0"

        def string(text: str) -> int:
            nonlocal strings
            strings += text.encode() + b"\0"
            return len(strings) - len(text) - 1

        for n, memory in enumerate(self.memory):
            kind = _GLOBAL - memory.managed
            add(f".cudbg.global.{n}", kind, memory.data, address=memory.address)
        rows = []
        for n, device in enumerate(self.devices):
            names = (string(device.name), string("GPU"), string("sm_{}{}".format(*device.arch)))
            rows.append(
                (
                    *names, n, 0, 6, device.sms, 64, 32, 255, 8, *device.arch, 16,
                    0, 63, 8, 16,
                )
            )  # fmt: skip
        table = add(".cudbg.devtbl", _DEVICES, self._rows(_DEVICE, rows), entry=self._size(_DEVICE))
        for n, device in enumerate(self.devices):
            self._device(add, table, n, device)
        if meta := self._rows(
            _META, [(string("writer"), *self.release, *self.cuda, self.flags, 0)]
        ):
            add(".cudbg.meta", _METADATA, meta)
        add(".strtab", _STRTAB, strings)
        return found

    def _size(self, row: _Row) -> int:
        return struct.calcsize(self._format(row))

    def _format(self, row: _Row) -> str:
        return "<" + "".join(part for since, part in row if since <= self.release[0])

    def _rows(self, row: _Row, values: Sequence[Sequence[int]]) -> bytes:
        """Rows of a table, cut to what the driver writes."""
        one = struct.Struct(self._format(row))
        count = len(one.unpack(bytes(one.size)))
        return b"".join(one.pack(*v[:count]) for v in values) if count else b""

    def _device(self, add: Callable[..., int], table: int, n: int, device: Device) -> None:
        handles = [_HANDLE + 0x10000 * n + 0x100 * c for c in range(len(device.contexts))]
        contexts = add(
            f".cudbg.ctxtbl.dev{n}", _CONTEXTS,
            self._rows(_CONTEXT, [(h, 1 << 47, 1 << 46, 4096, n, 1) for h in handles]),
            table, n, self._size(_CONTEXT),
        )  # fmt: skip
        for c, modules in enumerate(device.contexts):
            listed = add(
                f".cudbg.modtbl.dev{n}.ctx{c}", _MODULES,
                self._rows(_MODULE, [(handles[c] + 1 + m,) for m in range(len(modules))]),
                contexts, c, self._size(_MODULE),
            )  # fmt: skip
            for m, module in enumerate(modules):
                if module.original is not None:
                    add(f".cudbg.elfimg.dev{n}.ctx{c}", _IMAGE, module.original, listed, m)
                add(f".cudbg.relfimg.dev{n}.ctx{c}", _RELOCATED, module.relocated, listed, m)
        grids = add(
            f".cudbg.gridtbl.dev{n}", _GRIDS,
            self._rows(
                _GRID,
                [
                    (
                        g.id, handles[g.context], 1, g.entry, handles[g.context] + 1 + g.module,
                        0, 0x210, g.kind, g.origin, g.status, g.registers,
                        *g.grid, *g.block, 0, 1, *g.cluster, *NONE,
                    )
                    for g in device.grids
                ],
            ),
            table, n, self._size(_GRID),
        )  # fmt: skip
        for g, grid in enumerate(device.grids):
            if grid.params is not None:
                add(f".cudbg.param.dev{n}.grid{g}", _PARAMETERS, grid.params, grids, g)
        faults = [device.faults.get(s, Sm()) for s in range(device.sms)]
        sms = add(
            f".cudbg.smtbl.dev{n}", _SMS,
            self._rows(
                _SM,
                [
                    (s, f.exception, f.error_pc is not None, f.error_pc or 0, 0, 0, 0, 0, 0)
                    for s, f in enumerate(faults)
                ],
            ),
            table, n, self._size(_SM),
        )  # fmt: skip
        for sm in range(device.sms):
            self._sm(add, sms, n, sm, device, [cta for cta in device.ctas if cta.sm == sm])

    def _sm(
        self, add: Callable[..., int], link: int, n: int, sm: int, device: Device, ctas: list[Cta]
    ) -> None:
        place = f"dev{n}.sm{sm}"
        rows = [(c.grid, *c.index, *c.cluster, *c.cluster_size) for c in ctas]
        table = add(
            f".cudbg.ctatbl.{place}", _CTAS, self._rows(_CTA, rows), link, sm, self._size(_CTA)
        )
        registers = {grid.id: grid.registers for grid in device.grids}
        for c, cta in enumerate(ctas):
            if cta.shared:
                add(f".cudbg.shared.{place}.cta{c}", _SHARED, cta.shared, table, c)
            shared = cta.shared_size
            if shared is None:
                shared = len(cta.shared or b"")
            warps = add(
                f".cudbg.wptbl.{place}.cta{c}", _WARPS,
                self._rows(
                    _WARP, [_warp_row(w, registers.get(cta.grid, 32), shared) for w in cta.warps]
                ),
                table, c, self._size(_WARP),
            )  # fmt: skip
            for w, warp in enumerate(cta.warps):
                self._warp(add, warps, f"{place}.cta{c}.wp{w}", w, warp)

    def _warp(self, add: Callable[..., int], link: int, place: str, n: int, warp: Warp) -> None:
        for name, kind, since, words in (
            ("uregs", _UNIFORM, 400, warp.uniform_registers),
            ("upred", _UNIFORM_PREDICATES, 400, warp.uniform_predicates),
            ("cbu_bar", _CONVERGENCE, 575, warp.convergence_barriers),
        ):
            if since <= self.release[0]:
                add(f".cudbg.{name}.{place}", kind, _words(words), link, n, 4)
        rows = [
            (ln.pc, ln.pc & 0xFFFF, ln.number, *ln.thread, ln.exception, 0, 0, 0, ln.state, 0, 0)
            for ln in warp.lanes
        ]
        table = add(
            f".cudbg.lntbl.{place}", _LANES, self._rows(_LANE, rows), link, n, self._size(_LANE)
        )
        for row, lane in enumerate(warp.lanes):
            add(f".cudbg.bt.{place}.ln{row}", _STACK, b"", table, row, 24)
            for name, kind, words in (
                ("regs", _REGISTERS, lane.registers),
                ("pred", _PREDICATES, lane.predicates),
            ):
                add(f".cudbg.{name}.{place}.ln{row}", kind, _words(words), table, row, 4)


def _words(words: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def _warp_row(warp: Warp, registers: int, shared: int) -> tuple[int, ...]:
    lanes = 0
    for lane in warp.lanes:
        lanes |= 1 << lane.number
    valid = lanes & 0xFFFFFFFF if warp.valid is None else warp.valid
    exited = ~valid & 0xFFFFFFFF if warp.exited is None else warp.exited
    return (
        0, warp.slot, valid, valid, warp.broken, 0, registers, shared, 0, valid, exited,
        warp.collective, *warp.barrier,
    )  # fmt: skip


def assemble(sections: Sequence[Section]) -> bytes:
    """The file of sections, their contents first, then their headers."""
    names = bytearray()
    headers: list[bytes] = []
    at = 64
    one = struct.Struct("<IIQQQQIIQQ")
    strings = Section(".shstrtab", _STRTAB, b"")
    for number, s in enumerate([*sections, strings]):
        start = len(names)
        names += s.name.encode() + b"\0"
        size = len(names) if s is strings else len(s.data)
        kind = s.kind + 0x80000000
        flags = 2 if number else 0
        headers.append(
            one.pack(start, kind, flags, s.address, at, size, s.link, s.info, 0, s.entry)
        )
        at += size
    count = len(headers)
    if count >= 0xFF00:  # the first section says how many there are, and which has the names
        headers[0] = one.pack(0, 0, 0, 0, 0, count, count - 1, 0, 0, 0)
    ident = b"\x7fELF" + bytes([2, 1, 1, 0x33, 7]) + bytes(7)
    short = (0, 0xFFFF) if count >= 0xFF00 else (count, count - 1)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 4, 190, 1, 0, 0, at, 0, 64, 0, 0, 64, *short)
    return b"".join((header, *(s.data for s in sections), names, *headers))


def load(cubin: bytes, addresses: Mapping[str, int]) -> bytes:
    """A cubin as it lies on the device: its functions have addresses, ``addresses`` by name."""
    image = bytearray(cubin)
    (offset,) = struct.unpack_from("<Q", image, 40)
    count, strings = struct.unpack_from("<HH", image, 60)
    one = struct.Struct("<IIQQQQIIQQ")
    headers = [list(one.unpack_from(image, offset + 64 * n)) for n in range(count)]

    def text(table: list[int], at: int) -> str:
        start = table[4] + at
        return image[start : image.index(b"\0", start)].decode()

    sections = {text(headers[strings], h[0]): n for n, h in enumerate(headers)}
    symbols = next(h for h in headers if h[1] == 2)
    placed = {sections[f".text.{name}"]: address for name, address in addresses.items()}
    for n, address in placed.items():
        headers[n][3] = address
        one.pack_into(image, offset + 64 * n, *headers[n])
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        where = struct.unpack_from("<H", image, at + 6)[0]
        if where in placed:
            (value,) = struct.unpack_from("<Q", image, at + 8)
            struct.pack_into("<Q", image, at + 8, value + placed[where])
    return bytes(image)


def copy_of(dump: CoreDump) -> Dump:
    """What is read out of a dump, to be written again. What is not read has the usual values."""
    driver = dump.driver
    assert driver is not None
    flags = sum(1 << bit for bit, name in SKIPPED.items() if name in driver.skipped)
    return Dump(
        [_copy_of_device(dump, device) for device in dump.devices],
        [Memory(m.address, bytes(m.data)) for m in dump.memory],
        driver.release,
        driver.cuda,
        flags,
    )


def _copy_of_device(dump: CoreDump, device: core_dump.Device) -> Device:
    handles: dict[int, list[int]] = {}
    contexts: list[list[Module]] = []
    for image in dump.images:
        if image.device == device.number and image.relocated:
            if image.context not in handles:
                handles[image.context] = []
                contexts.append([])
            handles[image.context].append(image.module)
            original = [
                i.data
                for i in dump.images
                if (i.context, i.module, i.relocated) == (image.context, image.module, False)
            ]
            contexts[-1].append(Module(image.data, original[0] if original else None))
    grids = [
        Grid(
            g.id, g.entry, g.grid, g.block, g.cluster, g.params, g.registers,
            STATUSES.index(g.status), list(handles).index(g.context),
            handles[g.context].index(g.module), 2 - g.system,
        )
        for g in dump.grids
        if g.device == device.number
    ]  # fmt: skip
    ctas = [
        Cta(
            c.grid.id, c.index, [_copy_of_warp(w, c.grid.registers) for w in c.warps], c.sm,
            c.shared, c.cluster or NONE, c.cluster_size or NONE, c.shared_bytes,
        )
        for c in dump.ctas
        if c.grid.device == device.number
    ]  # fmt: skip
    faults = {f.sm: Sm(f.exception, f.pc) for f in dump.faults if f.device == device.number}
    return Device(grids, ctas, contexts, device.arch, device.sms, device.name, faults)


def _copy_of_warp(warp: core_dump.Warp, registers: int) -> Warp:
    lanes = [
        Lane(
            lane.number, lane.pc, lane.thread,
            _until_none(partial(warp.register, lane.number), registers),
            warp.predicates(lane.number) or (), lane.exception,
            1 if lane.state is None else STATES.index(lane.state),
        )
        for lane in warp.lanes
    ]  # fmt: skip
    barrier = warp.barrier
    return Warp(
        lanes, warp.number, warp.valid, warp.exited, 0, warp.broken,
        _until_none(warp.uniform_register, 256), warp.uniform_predicates() or (),
        _until_none(warp.convergence_barrier, 32),
        (SCOPES.index(barrier.scope), barrier.info) if barrier else (0, 0),
    )  # fmt: skip


def _until_none(read: Callable[[int], int | None], most: int) -> tuple[int, ...]:
    return tuple(word for n in range(most) if (word := read(n)) is not None)
