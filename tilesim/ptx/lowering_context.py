"""A kernel of PTX with its launch as MIR."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from os.path import dirname

from tilesim.arith import types
from tilesim.arith.types import WIDTH, DType, f32, f64
from tilesim.ir.addresses import mbar_at, view_at
from tilesim.ir.declarations import Fragment, Mbar, TensorMap, View
from tilesim.ir.expr import Base, Const, Expr, Special, Unary, Var, walk
from tilesim.ir.loc import Loc, shortened
from tilesim.ir.op import Op
from tilesim.ir.ops.compute import AccessTile
from tilesim.ir.tensormap import ADDRESS_BYTES
from tilesim.ptx import bind, grid_workspace, inline
from tilesim.ptx.accumulators import Tiles
from tilesim.ptx.bind import Launched
from tilesim.ptx.constants import Constants
from tilesim.ptx.inline import At, Flat, Items, Not, Register, Step, Symbol
from tilesim.ptx.made_maps import MadeMaps
from tilesim.ptx.syntax import Float, Integer, LaunchError, Located, PtxError, Sink, Unsupported
from tilesim.ptx.templates import Forms
from tilesim.records import replace

#: registers hold unsigned numbers, or the bits of what they hold
_REGISTERS: dict[int, DType] = {
    1: types.pred, 8: types.u8, 16: types.u16, 32: types.u32, 64: types.u64,
}  # fmt: skip


#: what names in MIR have none of
_STRANGE = re.compile(r"\W")
#: a mask of all lanes
_EVERY = 0xFFFFFFFF
#: opcodes without qualifiers: what reaches memory or other threads
_REACHING = frozenset({
    "atom", "bar", "barrier", "cp", "fence", "ld", "ldmatrix", "mbarrier", "membar", "mma", "red",
    "redux", "setmaxnreg", "shfl", "st", "stmatrix", "tcgen05", "vote", "wgmma",
})  # fmt: skip
#: bytes in which shared memory is given to CTAs (PTX `%total_smem_size`)
_SHARED_UNIT = 128


class Lowering:
    """What the rules of instructions use to make operands of MIR."""

    def __init__(self, launched: Launched, file: str) -> None:
        self.launched = launched
        self.kernel = launched.kernel
        self.constants = Constants(launched.kernel, launched.value, launched.launch.sizes)
        self.file = file
        #: what reports call the files of the source, by number
        self._files = {n: shortened(path) for n, path in launched.kernel.files.items()}
        #: by file and inlined function, its lines
        self._lines_of: dict[tuple[int, str], set[int]] = {}
        places = {id(s.located): s.located for s in launched.kernel.code if s.located is not None}
        for located in places.values():
            for at in located.frames:
                self._lines_of.setdefault((at.file, at.function), set()).add(at.line)
        self._around = _calls_around(launched.kernel.code)
        self.variables: dict[str, Var] = {}
        #: those of registers, by the names that these have in PTX
        self._of_registers: dict[str, Var] = {}
        self.fragments: dict[str, Fragment] = {}
        self.tiles = Tiles(launched.kernel, self.constants)
        #: tensor maps that the kernel makes, as far as they are known before it runs
        self.maps: dict[str, TensorMap] = {}
        #: registers that hold numbers of the launch, for which others may stand (``--for-all``)
        self.given: set[str] = set()
        self.made_maps = MadeMaps(launched, self.constants)
        self.forms = Forms()
        #: registers with the address with which a cooperative grid waits, or a part of it
        self.workspace = grid_workspace.parts(launched.kernel, self.constants)
        #: sizes of the parts of arguments of functions, by name and offset
        self._arguments: dict[str, dict[int, int]] = {}
        program = launched.program
        declared = (*program.tensors, *program.maps, *program.shared)
        #: the variables each of which stands for the registers of a tile
        self.of_tiles: set[str] = set()
        self._names = {item.name for item in declared}
        self.loc = Loc(file, 0)
        self.step: Step | None = None
        #: what has to be done before the current instruction
        self.before: list[Op] = []

    # ------------------------------------------------------------------ errors and places

    def at(self, step: Step) -> None:
        """What follows is made for this instruction."""
        self.step = step
        self.loc = self._loc(step)

    def _loc(self, step: Step) -> Loc:
        behind = Loc(self.file, step.place.line)
        if step.located is None:
            return behind
        inner, outer = self._frames(step.located)
        if outer.file not in self._files:
            return behind
        file = self._files[outer.file]
        helper = self._beside(step.located)
        if helper is not None:
            behind = Loc(self._files[helper.file], helper.line, behind=behind)
        own = self._own(inner, outer)
        if own.line != outer.line:
            behind = Loc(file, own.line, behind=behind)
        around: tuple[tuple[str, int], ...] = ()
        if step.opcode.startswith("mbarrier.init"):
            around = tuple((self._files.get(at.file, ""), at.line) for at in (outer, *inner[::-1]))
        return Loc(file, outer.line, behind=behind, inlined=around)

    def _frames(self, located: Located) -> tuple[list[Located], Located]:
        """The position that says where in the kernel something is, and those of the calls inside.

        It is in the kernel itself, in the one function that does everything for it, or in a lambda
        of these that another function calls: its lines are theirs, and those of that call say no
        more than that.
        """
        frames = [*located.frames]
        outer = max(len(frames) - 1 - self._around, 0)
        names = [at.function or self.kernel.entry.name for at in frames]
        for depth in range(outer):
            for owner in names[outer:]:
                local = _local_to(owner)
                there = names[depth + 1] == owner or names[depth + 1].startswith(local)
                if names[depth].startswith(local) and not there:
                    return frames[:depth], frames[depth]
        return frames[:outer], frames[outer]

    def _own(self, inner: list[Located], outer: Located) -> Located:
        """The innermost position in the kernel's file, in a function of several lines if there is
        one: one of one line says no more than its call."""
        beside = [at for at in inner if at.file == outer.file]
        several = (at for at in beside if len(self._lines_of[at.file, at.function]) > 1)
        return next(several, next(iter(beside), outer))

    def _beside(self, located: Located) -> Located | None:
        """The innermost position in a helper of the user's that is in another file: beside that of
        the kernel, and in a function of several lines, as one of one line says no more than its
        call."""
        folder = dirname(self._files[located.outermost.file])
        for at in located.frames:
            if at.file == located.outermost.file:
                return None
            several = len(self._lines_of.get((at.file, at.function), ())) > 1
            if several and dirname(self._files.get(at.file, "?/")) == folder:
                return at
        return None

    def unsupported(self, what: str, fix: str = "") -> Unsupported:
        """An error for the current instruction, which is not modelled."""
        wrong = self.malformed(what, fix)
        return Unsupported(wrong.file, wrong.line, wrong.column, wrong.what, fix)

    def require_known(self, step: Step, *known: str) -> None:
        """Raises Unsupported: a qualifier is none of these; ``kind::`` stands for all kinds."""
        for name in step.qualifiers:
            kind, parted, _ = name.partition("::")
            if name not in known and (kind + parted not in known or not parted):
                raise self.unsupported(f".{name} is not modelled here")

    def malformed(self, what: str, fix: str = "") -> PtxError:
        """An error for the current instruction, which no compiler takes."""
        assert self.step is not None
        place = self.step.place
        return PtxError(self.file, place.line, place.column, f"{self.step.opcode}: {what}", fix)

    # ------------------------------------------------------------------ registers

    def register(self, operand: Flat) -> Var:
        """The variable of a register that is set."""
        match operand:
            case Register(name, kind):
                return self._variable(name, kind)
            case Sink():
                return self.scratch("u64")
            case _:
                raise self.unsupported("a result is not a register")

    def _variable(self, register: str, kind: str) -> Var:
        if register in self._of_registers:
            return self._of_registers[register]
        name, kind = self.tiles.stands_for(register, kind)
        found = self.variables.get(name)
        if found is None:
            dtype = _REGISTERS.get(WIDTH[kind])
            if dtype is None:
                raise self.unsupported(f"registers of {WIDTH[kind]} bits are not modelled here")
            found = self.variables[name] = Var(self._free(name), dtype)
            if name.endswith(":"):
                self.of_tiles.add(found.name)
        self._of_registers[register] = found
        return found

    @property
    def carry(self) -> Var:
        """The bit that extended-precision arithmetic carries, which no operand has (PTX 9.7.2)."""
        return self._variable(".carry", "u32")

    def scratch(self, kind: str) -> Var:
        """A variable of its own."""
        name = f".{len(self.variables)}"
        return self._variable(name, kind)

    def part_of_argument(self, place: Symbol, nbytes: int) -> Expr:
        """Bytes of a ``.param`` variable that may have been stored with others at once."""
        for first, size in self._arguments.get(place.variable.name, {}).items():
            skipped = place.offset - first
            if skipped >= 0 and skipped + nbytes <= size and nbytes != size:
                whole = self.argument(replace(place, offset=first), size)
                return whole >> 8 * skipped & (1 << 8 * nbytes) - 1
        return self.argument(place, nbytes)

    def argument(self, place: Symbol, nbytes: int) -> Var:
        """The variable of bytes of a ``.param`` variable, with which functions are called."""
        name, start = place.variable.name, place.offset
        parts = self._arguments.setdefault(name, {})
        for other, size in parts.items():
            if other < start + nbytes and start < other + size and (other, size) != (start, nbytes):
                raise self.unsupported("an argument is not accessed as it was stored")
        parts[start] = nbytes
        return self._variable(f"{name}+{start}", f"b{8 * nbytes}")

    def variable(self, dtype: DType) -> Var:
        """A variable of its own for elements of a type, which PTX has as bits."""
        name = f".{len(self.variables)}"
        wide = f64 if dtype.bits > 32 else f32
        found = self.variables[name] = Var(self._free(name), wide)
        return found

    def _free(self, name: str) -> str:
        plain = _STRANGE.sub("_", name.lstrip("%"))
        chosen, number = plain, 0
        while chosen in self._names:
            number += 1
            chosen = f"{plain}_{number}"
        self._names.add(chosen)
        return chosen

    def fragment(self, first: str, dtype: DType, shape: tuple[int, int]) -> Fragment:
        """The tile of a warpgroup that this register belongs to."""
        tile = self.tiles.of(first)
        if tile is None:
            raise self.unsupported("a tile has no registers")
        if tile in self.tiles.mixed:
            raise self.unsupported(
                "registers of a tile are in another one as well, or at another place (F3)",
                "give each tile registers of its own",
            )
        found = self.fragments.get(tile)
        if found is None:
            found = Fragment(self._free(f"{tile}_tile"), dtype, shape, "warpgroup")
            self.fragments[tile] = found
        if (found.dtype, found.shape) != (dtype, shape):
            raise self.unsupported("a register begins tiles of different shapes")
        return found

    def moved_fragment(self, dtype: DType, shape: tuple[int, int]) -> Fragment:
        """A fragment of a warp that stands for the registers of accesses to tensor memory."""
        name = f".{dtype}{shape}"
        if name not in self.fragments:
            self.fragments[name] = Fragment(self._free("moved"), dtype, shape)
        return self.fragments[name]

    def accesses(self, step: Step) -> Iterator[AccessTile]:
        """Accesses to registers of the tiles of wgmma that come with an instruction."""
        moved = self.tiles.moves(step)
        for tile, write in self.tiles.accessed(step):
            if tile in self.fragments:
                yield AccessTile(
                    fragment=self.fragments[tile], write=write, moved=moved,
                    variable=self._variable(tile, "b32").name, loc=self.loc,
                )  # fmt: skip

    # ------------------------------------------------------------------ operands

    def value(self, operand: Flat, width: int = 64) -> Expr:
        """An operand that is read; constants with the bits of ``width``."""
        match operand:
            case Register(name, kind):
                return self._variable(name, kind)
            case Integer(number):
                return Const(number & (1 << width) - 1)
            case Float(bits, size):
                return Const(self._float(bits, size, width))
            case inline.Special(name):
                return self.special(name)
            case Symbol(variable):
                if width < 8 * ADDRESS_BYTES and variable.space != "shared":
                    raise self.unsupported(
                        f"the address of {variable.name} in .{variable.space} in {width} bits is "
                        "not modelled"
                    )
                return self.symbol(operand)
            case Not(register):
                return Unary("not", self._variable(register.name, register.type))
            case _:
                raise self.unsupported("an operand is of a kind that is not modelled")

    def predicate(self, operand: Flat) -> Expr:
        """A predicate that is an operand, or a number that says whether it holds."""
        if isinstance(operand, Not | Register):
            return self.value(operand, 1)
        return Const(int(bool(self.constant(operand, "a predicate"))))

    def fits(self, operand: Flat, width: int) -> bool:
        """Whether an operand has no bits beyond ``width``."""
        return not isinstance(operand, Register) or WIDTH[operand.type] <= width

    def require_width(self, operand: Flat, width: int, *, wider: bool = False) -> None:
        """Checks that an operand, if it is a register, is as ``width`` bits wide as the instruction
        has it; ``wider``: or wider (PTX 9.4.1). Raises a `PtxError` if it is not."""
        register = operand.operand if isinstance(operand, Not) else operand
        if isinstance(register, Register):
            has = WIDTH[register.type]
            if has < width or (has > width and not wider):
                raise self.malformed(f"{register.name} has {has} bits, the instruction {width}")

    def reads(self, written: tuple[Var, ...], values: tuple[Expr, ...]) -> bool:
        """Whether an instruction reads one of the registers that it sets."""
        return any(part in written for value in values for part in walk(value))

    def _float(self, bits: int, size: int, width: int) -> int:
        if size == width:
            return bits
        raise self.unsupported(f"a constant of {size} bits for an operand of {width}")

    def symbol(self, operand: Symbol) -> Expr:
        """The address of a variable."""
        variable, launched = operand.variable, self.launched
        if variable.space == "shared":
            shown = self.launched.kernel.shown[variable.name]
            if shown not in self.launched.program.placement:
                raise LaunchError(
                    f"{self.launched.launch.entry}: dynamic_shared: the kernel uses {shown}, and "
                    f"the launch gives it {self.launched.launch.dynamic_shared} bytes"
                )
            return Base(shown, "shared") + operand.offset
        if variable.name in launched.variables:
            tensor = launched.variables[variable.name]
            return bind.variable_address(variable, tensor, launched.launch) + operand.offset
        raise self.unsupported(
            f"the address of {variable.name} in .{variable.space} is not modelled"
        )

    def special(self, name: str) -> Expr:
        """A special register."""
        launch = self.launched.launch
        base, _, axis = name.partition(".")
        k = "xyz".index(axis) if axis else 0
        threads = Special("thread_id")
        x, y, _ = launch.block
        cta = (Special("cta_x"), Special("cta_y"), Special("cta_z"))[k]
        found: dict[str, Callable[[], Expr]] = {
            "tid": lambda: self._thread(k, x, y, threads),
            "ntid": lambda: Const(launch.block[k]),
            "ctaid": lambda: cta,
            "nctaid": lambda: Const(launch.grid[k]),
            "clusterid": lambda: cta // launch.cluster[k],
            "nclusterid": lambda: Const(launch.grid[k] // launch.cluster[k]),
            "cluster_ctaid": lambda: cta % launch.cluster[k],
            "cluster_nctaid": lambda: Const(launch.cluster[k]),
            "cluster_ctarank": lambda: Special("cluster_rank"),
            "cluster_nctarank": lambda: Const(launch.cluster_size),
            "is_explicit_cluster": lambda: Const(1),
            "laneid": lambda: Special("lane_id"),
            "dynamic_smem_size": lambda: Const(launch.dynamic_shared),
            "total_smem_size": lambda: Const(
                -(-self.launched.program.smem_requested // _SHARED_UNIT) * _SHARED_UNIT
            ),
            "lanemask_eq": lambda: Const(1) << Special("lane_id"),
            "lanemask_lt": lambda: (Const(1) << Special("lane_id")) - 1,
            "lanemask_le": lambda: (Const(2) << Special("lane_id")) - 1,
            "lanemask_ge": lambda: -(Const(1) << Special("lane_id")) & _EVERY,
            "lanemask_gt": lambda: -(Const(2) << Special("lane_id")) & _EVERY,
        }
        make = found.get(base)
        if make is None:
            raise self.unsupported(f"%{name} is not modelled")
        return make()

    def _thread(self, axis: int, x: int, y: int, threads: Expr) -> Expr:
        launch = self.launched.launch
        if launch.block[axis] == 1:
            return Const(0)
        if axis == 0:
            return threads if launch.threads == x else threads % x
        return threads // x % y if axis == 1 else threads // (x * y)

    def constant(self, operand: Flat, what: str) -> int:
        """An operand that has to be known without running the kernel."""
        found = self.constants.number(operand)
        if found is None:
            raise self.unsupported(f"{what} is not a constant, which is not modelled")
        return found

    # ------------------------------------------------------------------ memory

    def address(self, operand: Flat) -> Expr:
        """The byte address that ``[...]`` names."""
        match operand:
            case At(Register() as register, offset, ()):
                base = self.value(register)
                return base + offset if offset >= 0 else base - -offset
            case At(Symbol() as symbol, 0, ()):
                return self.symbol(symbol)
            case At(int() as number, offset, ()):
                return Const(number + offset)
            case _:
                raise self.unsupported("an address of this kind is not modelled")

    def space(self, qualifiers: Iterable[str]) -> str:
        """The state space that qualifiers name."""
        for qualifier in qualifiers:
            if qualifier in ("shared", "shared::cta"):
                return "shared::cta"
            if qualifier == "shared::cluster":
                return "shared::cluster"
            if qualifier in ("global", "local", "param", "const"):
                return qualifier
        return "generic"

    def view(
        self, operand: Flat, dtype: DType, shape: tuple[int, ...], space: str,
        strides: tuple[int, ...] | None = None,
    ) -> View:  # fmt: skip
        """What lies at an address."""
        match space:
            case "shared::cta" | "shared::cluster" | "global" | "generic":
                at = operand if isinstance(operand, At) else At(0)
                return view_at(
                    self.address(operand), dtype, shape, space=space, strides=strides,
                    vector=at.vector, undivided=at.undivided,
                )  # fmt: skip
            case _:
                raise self.unsupported(f"memory in .{space} is not modelled")

    def mbar(self, operand: Flat, space: str = "shared::cta") -> Mbar:
        """The mbarrier at an address."""
        match space:
            case "shared::cta" | "shared::cluster":
                return mbar_at(self.address(operand), space=space)
            case _:
                raise self.unsupported(f"an mbarrier at a {space} address is not modelled")

    def items(self, operand: Flat) -> tuple[Flat, ...]:
        """The items of a vector, or the operand alone."""
        return operand.items if isinstance(operand, Items) else (operand,)

    def bits(self, width: int) -> DType:
        """The type of ``width`` bits in memory or in a register."""
        found = _REGISTERS.get(width)
        if found is None or width == 1:
            raise self.unsupported(f"elements of {width} bits are not modelled")
        return found


Rule = Callable[[Lowering, Step], Iterable[Op]]
#: how instructions are lowered, by the first parts of their opcode; filled by `tilesim.ptx.rules`
RULES: dict[str, Rule] = {}


def rule(*opcodes: str) -> Callable[[Rule], Rule]:
    """Decorator: the function lowers instructions whose opcode begins so."""

    def register(function: Rule) -> Rule:
        for opcode in opcodes:
            if opcode in RULES:
                raise TypeError(f"two rules for {opcode}")
            RULES[opcode] = function
        return function

    return register


def _local_to(function: str) -> str:
    """How the names of lambdas of a function begin, as C++ writes names."""
    encoded = function[2:] if function.startswith("_Z") else f"{len(function)}{function}"
    return f"_ZZ{encoded}E"


def _calls_around(steps: Iterable[Step]) -> int:
    """How many calls in its own file stand around all that a kernel does with memory or with other
    threads: a kernel that only calls a function has one line for everything in it."""
    paths = [
        [*step.located.frames][::-1]
        for step in steps
        if step.located is not None and step.base in _REACHING and "param" not in step.qualifiers
    ]
    around = 0
    for depth, ways in enumerate(zip(*paths, strict=False)):
        if len({at.file for at in ways}) > 1 or ways[0].file != paths[0][0].file:
            break
        around = depth
        if len({(at.line, at.column) for at in ways}) > 1:
            return around
    return 0
