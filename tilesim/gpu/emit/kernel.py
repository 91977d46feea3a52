"""`emit`: a program as CUDA C++ with inline PTX."""

from __future__ import annotations

from tilesim.analysis.divergence import Lanes
from tilesim.gpu.emit import emitter
from tilesim.gpu.emit import trace as tracing
from tilesim.gpu.emit.emitter import Emitter, Options, Param, Source
from tilesim.gpu.emit.expr import Expressions, storage_type
from tilesim.gpu.emit.prelude import HELPERS, TYPES
from tilesim.gpu.emit.rules import write
from tilesim.gpu.emit.watch import RECORD_WORDS, use_watchdog
from tilesim.ir.arithmetic import variable_type
from tilesim.ir.declarations import GlobalTensor, Mbarriers
from tilesim.ir.expr import SPECIALS, Const, ScalarParam, Var
from tilesim.ir.op import Op
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, While
from tilesim.ir.registers import assigned, escaping_counters, outliving_counters
from tilesim.ir.verify import verify

_KEYWORDS = """
    alignas alignof and asm auto bool break case catch char class const constexpr continue decltype
    default delete do double else enum explicit export extern false float for friend goto if inline
    int long mutable namespace new noexcept not nullptr operator or private protected public
    register return short signed sizeof static struct switch template this throw true try typedef
    typeid typename union unsigned using virtual void volatile while xor"""
#: names that the emitted code uses itself, or that the compiler knows without a header
_OURS = """
    s8 s16 s32 s64 u8 u16 u32 u64 f32 f64 abs exp log sqrt min max floor shared smem agent mailbox
    discarded_token watchdog watchdog_budget perturb_seed perturb_warp perturb_calls DEVICE
    Watchdog Trace trace trace_buffer trace_cta trace_wgmma trace_clock trace_clock64
    trace_leader"""
_RESERVED = frozenset((*_KEYWORDS.split(), *_OURS.split(), *SPECIALS, *HELPERS))

_SPECIAL = {
    "lane_id": "threadIdx.x & 31",
    "warp_id": "__shfl_sync(0xffffffff, threadIdx.x >> 5, 0)",
    "thread_id": "threadIdx.x",
    "cta_x": "blockIdx.x", "cta_y": "blockIdx.y", "cta_z": "blockIdx.z",
    "grid_x": "gridDim.x", "grid_y": "gridDim.y", "grid_z": "gridDim.z",
}  # fmt: skip
_REGISTERS = {
    "cluster_rank": "mov.u32 %0, %%cluster_ctarank;",
    "cluster_size": "mov.u32 %0, %%cluster_nctarank;",
    "cluster_id": "{\\n.reg .u32 x, y, z, nx, ny;\\nmov.u32 x, %%clusterid.x;\\n"
    "mov.u32 y, %%clusterid.y;\\nmov.u32 z, %%clusterid.z;\\nmov.u32 nx, %%nclusterid.x;\\n"
    "mov.u32 ny, %%nclusterid.y;\\nmad.lo.u32 y, z, ny, y;\\nmad.lo.u32 %0, y, nx, x;\\n}",
}


def emit(
    program: Program,
    *,
    watchdog: bool = False,
    perturb: bool = False,
    trace: bool = False,
    arch: str | None = None,
) -> Source:
    """CUDA C++ that does on a GPU what ``program`` does in the simulator.

    Args:
        watchdog: waits are bounded; a warp whose wait expires leaves a record and the kernel traps.
        perturb: random delays before synchronising instructions, from a seed given at launch.
        trace: warps record when they execute synchronising instructions (`tilesim.gpu.trace`).
        arch: target to emit for; the program's own by default.

    Raises:
        InvalidProgram: the program is rejected by the verifier.
        EmitError: an instruction has operands that no machine instruction can express.
    """
    verify(program)
    options = Options(watchdog, perturb, trace)
    return _Kernel(program, options, arch or program.target.name).source()


def identifier(name: str) -> str:
    """A C identifier for a name of the program; ours are reserved or end in an underscore."""
    return f"{name}_u" if name in _RESERVED or name.endswith("_") else name


class _Kernel:
    """One emission: writes the body first, then the head that the body turned out to need."""

    def __init__(self, program: Program, options: Options, arch: str) -> None:
        self.program = program
        self.options = options
        self.arch = arch
        self.entry = identifier("".join(c if c.isalnum() else "_" for c in program.name))
        self.typing = emitter.emitted_typing(program)
        self.names = Expressions(self._identifiers(), self.typing)
        self.names.addresses = self._addresses()
        self.assigned = assigned(program)
        self.meetings = Lanes(program)
        self.outliving = outliving_counters(program)
        self.escaping = escaping_counters(program)
        self.counters: set[str] = set()
        self.e = Emitter(program, options, self.names)

    def _identifiers(self) -> dict[str, str]:
        program = self.program
        declared = [x.name for group in (program.params, program.maps, program.shared,
                    program.fragments, program.variables) for x in group]  # fmt: skip
        names = {name: identifier(name) for name in declared}
        if self.entry in names.values():
            self.entry += "_kernel"
        return {**{s: s for s in SPECIALS}, **names}

    def _addresses(self) -> dict[str, str]:
        """Where each declaration lies, as C expressions: u32 in shared memory, u64 elsewhere."""
        program, names = self.program, self.names.names
        near = {name: f"(smem + {offset}u)" for name, offset in program.placement.items()}
        far = {t.name: f"((u64){names[t.name]})" for t in program.tensors}
        return {**near, **far, **{m.name: f"((u64)&{names[m.name]})" for m in program.maps}}

    # ------------------------------------------------------------------ the whole text

    def source(self) -> Source:
        """The finished source."""
        self._block(self.program.body)
        if self.options.trace:
            self.e.line("trace.finish();")
        head = self._head()
        body, locs = self.e.lines, self.e.locs
        text = "\n".join([*head, *body, "}", ""])
        lines = (*([None] * len(head)), *locs, None)
        program = self.program
        return Source(
            program, text, self.entry, self.arch, self._params(), program.grid,
            32 * program.warps, program.smem_bytes or program.smem_used, tuple(self.e.sites),
            lines, tuple(self.e.traced), frozenset(self.e.apart),
        )  # fmt: skip

    def _params(self) -> tuple[Param, ...]:
        params = [
            Param("scalar" if isinstance(p, ScalarParam) else "tensor", p.name)
            for p in self.program.params
        ]
        params += [Param("map", m.name) for m in self.program.maps]
        if self.options.watchdog:
            params += [Param("mailbox", "mailbox"), Param("budget", "watchdog_budget")]
        if self.options.perturb:
            params.append(Param("seed", "perturb_seed"))
        if self.options.trace:
            params.append(Param("trace", "trace_buffer"))
        return tuple(params)

    def _head(self) -> list[str]:
        preamble = self._preamble()
        if self.program.maps:
            self.e.use("TensorMap")
        for name in sorted(self.names.helpers):
            self.e.use(name)
        origin = f"// {self.program.name}, {self.arch}, from {self.program.loc}"
        parts = [origin, TYPES, *(HELPERS[n].text for n in self.e.used)]
        parts += [*self.e.generated.values(), "", *self._signature(), *preamble]
        return "\n".join(parts).split("\n")

    def _signature(self) -> list[str]:
        program = self.program
        lines = [f'extern "C" __global__ void {self._attributes()}', f"{self.entry}("]
        declared = []
        for param in program.params:
            name = self.names.names[param.name]
            if isinstance(param, GlobalTensor):
                declared.append(f"{storage_type(param.dtype)}* {name}")
            else:
                declared.append(f"{variable_type(param.dtype)} {name}")
        declared += [
            f"const __grid_constant__ TensorMap {self.names.names[m.name]}" for m in program.maps
        ]
        if self.options.watchdog:
            declared += ["u64* mailbox", "u64 watchdog_budget"]
        if self.options.perturb:
            declared.append("u32 perturb_seed")
        if self.options.trace:
            declared.append("u64* trace_buffer")
        lines += [f"    {d}," for d in declared]
        lines[-1] = lines[-1].rstrip(",") + ") {"
        return lines

    def _attributes(self) -> str:
        program = self.program
        threads = 32 * program.warps
        blocks = 1
        if program.registers:
            blocks = max(1, program.target.registers // (threads * program.registers))
        text = f"__launch_bounds__({threads}, {blocks})"
        if program.cluster_size > 1:
            text += f" __cluster_dims__{program.cluster}"
        return text

    def _preamble(self) -> list[str]:
        """Declarations at the start of the kernel."""
        program, names = self.program, self.names
        lines: list[str] = []
        if program.shared:
            lines += ["extern __shared__ __align__(1024) char shared[];",
                      "const u32 smem = (u32)__cvta_generic_to_shared(shared);"]  # fmt: skip
        lines += self._agents()
        recording: list[str] = []
        if self.options.trace:
            tracing.use_trace(self.e)
            recording = tracing.preamble(program, names.specials)
        for special in SPECIALS:
            if special in names.specials:
                lines += self._special(special)
        lines += recording
        for item in program.shared:
            if isinstance(item, Mbarriers):
                offset = program.placement[item.name]
                lines.append(f"const u32 {names.names[item.name]} = smem + {offset};")
        lines += self._variables()
        for fragment in program.fragments:
            align = "alignas(4) " if fragment.dtype.bits < 32 else ""
            kind = storage_type(fragment.dtype)
            count = self.e.layout(fragment).count
            lines.append(f"{align}{kind} {names.names[fragment.name]}[{count}];")
        return [f"  {line}" for line in lines]

    def _agents(self) -> list[str]:
        """What identifies this warp to the watchdog and the random delays."""
        lines: list[str] = []
        if not (self.options.watchdog or self.options.perturb):
            return lines
        self.names.specials.add("warp_id")
        lines += [
            "const u32 agent = (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z))"
            f" * {self.program.warps} + (threadIdx.x >> 5);"
        ]
        if self.options.perturb:
            lines += ["const u32 perturb_warp = agent;", "u32 perturb_calls = 0;"]
        if self.options.watchdog:
            use_watchdog(self.e)
            record = f"mailbox + (u64)agent * {RECORD_WORDS}"
            lines.append(f"Watchdog watchdog = {{{record}, watchdog_budget, 0, false}};")
        return lines

    def _special(self, name: str) -> list[str]:
        if name in _SPECIAL:
            return [f"const s32 {name} = {_SPECIAL[name]};"]
        return [f"s32 {name};", f'asm volatile("{_REGISTERS[name]}" : "=r"({name}));']

    def _variables(self) -> list[str]:
        lines = [
            f"{self.names.type_of(var)} {self.names.names[var.name]} = 0;"
            for var in self.program.variables
            if var.name not in self.counters or var.name in self.outliving
        ]
        if "discarded_token" in self.names.names:
            lines.append("u64 discarded_token;")
        return lines

    # ------------------------------------------------------------------ statements

    def _block(self, body: tuple[Stmt, ...]) -> None:
        position = 0
        while position < len(body):
            stmt = body[position]
            if isinstance(stmt, Role):
                chain = _disjoint_roles(body[position:])
                self._roles(chain)
                position += len(chain)
                continue
            self._statement(stmt)
            position += 1

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case If():
                self._if(stmt)
            case For():
                self._for(stmt)
            case While():
                self._while(stmt)
            case Break():
                self.e.line("break;", stmt.loc)
            case Op():
                with self.e.instruction(stmt), tracing.recorded(self.e, stmt):
                    write(self.e, stmt)
            case _:
                raise TypeError(f"not a statement: {stmt!r}")

    def _roles(self, chain: list[Role]) -> None:
        """Roles without a common warp become one if/else chain, as setmaxnreg needs."""
        e = self.e
        for number, role in enumerate(chain):
            head = f"if ({self._members(role)}) {{  // {role.name}"
            if number:
                e.close(f"}} else {head}", role.loc)
                e.indent()
            else:
                e.open(head, role.loc)
            outer, e.role = e.role, emitter.role_name(e.role, role)
            self._block(role.body)
            e.role = outer
        e.close("}", chain[-1].loc)

    def _members(self, role: Role) -> str:
        self.names.specials.add("warp_id")
        first, last = min(role.warps), max(role.warps)
        if len(set(role.warps)) != last - first + 1:
            mask = sum(1 << w for w in set(role.warps))
            return f"{mask:#x}u >> warp_id & 1"
        if first == last:
            return f"warp_id == {first}"
        if first == 0:
            return f"warp_id <= {last}"
        tail = "" if last == self.program.warps - 1 else f" && warp_id <= {last}"
        return f"warp_id >= {first}{tail}"

    def _if(self, stmt: If) -> None:
        e = self.e
        split = self.meetings.splits(stmt)
        inside = e.lanes
        if split and inside == "all":
            single = isinstance(stmt.cond, Var) and stmt.cond.name in self.meetings.elected
            inside = "one" if single else "some"
        e.open(f"if ({e.expr(stmt.cond)}) {{", stmt.loc)
        with e.executed_by(inside):
            self._block(stmt.then)
        if stmt.orelse:
            e.close("} else {", stmt.loc)
            e.indent()
            with e.executed_by("some" if split else e.lanes):
                self._block(stmt.orelse)
        e.close("}", stmt.loc)
        self._meet(stmt)

    def _meet(self, stmt: Stmt) -> None:
        """Lanes that a region split meet again at its end."""
        if self.e.lanes == "all" and self.meetings.meets(stmt):
            self.e.line("__syncwarp();", stmt.loc)

    def _for(self, stmt: For) -> None:
        e, name = self.e, self.names.names[stmt.var.name]
        self.counters.add(stmt.var.name)
        counter = f"{name}_" if stmt.var.name in self.escaping else name
        stop = e.cast(stmt.stop, "s32")
        if not isinstance(stmt.stop, (Const, ScalarParam)):
            e.line(f"const s32 {name}_stop_ = {stop};", stmt.loc)
            stop = f"{name}_stop_"
        step = e.cast(stmt.step, "s32")
        if isinstance(stmt.step, Const):
            test = f"{counter} {'<' if stmt.step.value > 0 else '>'} {stop}"
        else:
            e.line(f"const s32 {name}_step_ = {step};", stmt.loc)
            step = f"{name}_step_"
            test = f"{step} > 0 ? {counter} < {stop} : {counter} > {stop}"
        advance = f"++{counter}" if step == "1" else f"{counter} += {step}"
        if stmt.var.name in self.assigned or emitter.counted(stmt, self.typing) is None:
            advance = f"{counter} = (s32)((u32){counter} + (u32){step})"
        e.line("#pragma unroll 1", stmt.loc)
        start = e.cast(stmt.start, "s32")
        own = "" if counter in self.outliving - self.escaping else "s32 "
        with e.block(f"for ({own}{counter} = {start}; {test}; {advance}) {{", stmt.loc):
            if counter != name:
                e.line(f"{name} = {counter};", stmt.loc)
            self._block(stmt.body)
        self._meet(stmt)

    def _while(self, stmt: While) -> None:
        e = self.e
        split = self.meetings.splits(stmt)
        began = f"began_{len(e.lines)}_"
        if self.options.watchdog:
            use_watchdog(e)
            e.line(f"const u64 {began} = globaltimer();", stmt.loc)
        with (
            e.block(f"while ({e.expr(stmt.cond)}) {{", stmt.loc),
            e.executed_by("some" if split and e.lanes == "all" else e.lanes),
        ):
            self._block(stmt.body)
            if self.options.watchdog:
                e.line(f"watchdog.spin({e.loop_site(stmt.loc)}, {began});", stmt.loc)
        self._meet(stmt)


def _disjoint_roles(body: tuple[Stmt, ...]) -> list[Role]:
    """The longest run of roles at the start of ``body`` that share no warp."""
    chain: list[Role] = []
    seen: set[int] = set()
    for stmt in body:
        if not isinstance(stmt, Role) or seen & set(stmt.warps):
            break
        seen |= set(stmt.warps)
        chain.append(stmt)
    return chain
