"""The statements of a CUDA source file: what a patch of one puts in, takes out, or stands beside.

Nothing is compiled: braces, brackets and keywords say where statements begin and end, which is all
that a patch of whole lines needs. What cannot be told apart so (a statement that a macro begins,
two statements in a line) is no place for a patch.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property

from tilesim.files import CUDA_ENDINGS, source_lines
from tilesim.ir.expr import Const, Expr, constant
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import BarSync, SyncWarp
from tilesim.ir.ops.cluster import ClusterArrive, ClusterWait
from tilesim.ir.ops.fence import Fence
from tilesim.records import dataclass, field
from tilesim.repair.ptx_patch import written

_FULL = 0xFFFFFFFF

_NOISE = re.compile(
    r"//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
    re.DOTALL | re.MULTILINE,
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_LABEL = re.compile(r"(?:case\b[^:;{}]*|default|[A-Za-z_]\w*)\s*:(?!:)")
_STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
_CONSTRAINT = re.compile(r'"[+=&]*[a-z]"\s*\(')
#: an arrival without bytes or a token, as one instruction of PTX, and ``mapa``
_ARRIVAL = re.compile(r"(mbarrier\.arrive(?!\.(?:expect_tx|noComplete))[\w.:]*) _, \[(\S+)\]")
_RANK = re.compile(r"mov\.u32 %0, %%cluster_ctarank;?")
_MAPA = re.compile(r"mapa\.shared::cluster\.u32 (\S+), (\S+), (\S+)")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_NAMESPACE = re.compile(r"\bnamespace\s+\w+\s*\{")
#: how often headers are followed that headers include
_DEEPEST = 4
_OPENS = {"(": ")", "[": "]", "{": "}"}


@dataclass(eq=False)
class Statement:
    """A statement: its lines (from 1), where it begins and ends in the text, the block around it.

    ``kind``: ``simple``, ``block``, or the keyword that it begins with. ``around`` is the block
    that it stands in, None if it is the one statement of an ``if`` or a loop without braces.
    """

    kind: str
    begin: int
    end: int
    first: int
    last: int
    around: Block | None
    above: Statement | None
    inner: list[Statement] = field(default_factory=list)


@dataclass(eq=False)
class Block:
    """Statements in braces; ``first`` and ``last`` are the lines of the braces."""

    first: int
    last: int
    statements: list[Statement]


@dataclass(eq=False)
class Function:
    """A function with a body. ``head`` is the text before it, from the end of what precedes."""

    name: str
    head: str
    begin: int
    first: int
    last: int
    body: Block

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters."""
        inner = self.head[self.head.find("(", self.head.find(self.name)) + 1 : self.head.rfind(")")]
        names = (_WORD.findall(part.partition("=")[0]) for part in _parted(inner))
        return tuple(found[-1] for found in names if found)

    @property
    def template(self) -> tuple[str, ...]:
        """The names of its template's parameters."""
        found = re.search(r"\btemplate\s*<([^<>]*)>", self.head)
        names = (_WORD.findall(part) for part in _parted(found[1])) if found else ()
        return tuple(own[-1] for own in names if own)


@dataclass(frozen=True)
class Helper:
    """A function that is nothing but inline PTX: its instructions, and what their operands are.

    ``operands``: by number, the name of a parameter (of the template: ``templated``), or None;
    ``texts``: what is written for it.
    """

    name: str
    instructions: tuple[str, ...]
    operands: tuple[str | None, ...]
    texts: tuple[str, ...]
    parameters: tuple[str, ...]
    template: tuple[str, ...]

    @property
    def arrives_on(self) -> str | None:
        """The parameter that says the barrier, if all it does is one arrival on the own CTA's."""
        if len(self.instructions) != 1:
            return None
        found = _ARRIVAL.fullmatch(self.instructions[0])
        if found is None or "cluster" in found[1].rpartition("shared")[2]:
            return None
        return self._parameter(found[2])

    @property
    def arrives_elsewhere(self) -> tuple[str, str] | None:
        """The parameters that say the barrier and the CTA, if all it does is one arrival there."""
        rest = [text.lstrip("{ ") for text in self.instructions]
        rest = [text for text in rest if text and text != "}" and not text.startswith(".reg")]
        if len(rest) != 2 or (mapa := _MAPA.fullmatch(rest[0])) is None:
            return None
        found = _ARRIVAL.fullmatch(rest[1])
        if found is None or found[2] != mapa[1] or ".shared::cluster" not in found[1]:
            return None
        barrier, cta = self._parameter(mapa[2]), self._parameter(mapa[3])
        return None if barrier is None or cta is None else (barrier, cta)

    def _parameter(self, operand: str) -> str | None:
        """The one parameter in the text of an operand."""
        if not re.fullmatch(r"%\d+", operand) or int(operand[1:]) >= len(self.texts):
            return None
        words = set(_WORD.findall(self.texts[int(operand[1:])]))
        found = [name for name in self.parameters if name in words]
        return found[0] if len(found) == 1 else None

    def call(self, wanted: Sequence[str]) -> str | None:
        """The call that executes just these instructions of PTX; None: it does not."""
        if len(wanted) != len(self.instructions):
            return None
        given: dict[str, int] = {}
        for asked, text in zip(wanted, self.instructions, strict=True):
            (code, numbers), (own, tokens) = _words(asked), _words(text)
            if _plain(own) != _plain(code) or len(tokens) != len(numbers):
                return None
            for token, number in zip(tokens, map(int, numbers), strict=True):
                if token.lstrip("-").isdigit():
                    if int(token) != number:
                        return None
                elif re.fullmatch(r"%\d+", token) and int(token[1:]) < len(self.operands):
                    name = self.operands[int(token[1:])]
                    if name is None or given.setdefault(name, number) != number:
                        return None
                else:
                    return None
        if set(given) != {*self.parameters, *self.template}:
            return None
        typed = ", ".join(str(given[n]) for n in self.template)
        passed = ", ".join(str(given[n]) for n in self.parameters)
        return f"{self.name}{f'<{typed}>' if typed else ''}({passed});"


class Source:
    """A file of CUDA C++: its lines, and its functions with their statements."""

    def __init__(self, file: str, lines: Sequence[str]) -> None:
        self.file = file
        self.lines = tuple(lines)
        self.text = "\n".join(lines)
        #: the same with blanks for comments, texts and directives
        self.bare = _NOISE.sub(_blank, self.text)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self.functions: list[Function] = []
        try:
            self._outside(0, len(self.bare))
        except _Unreadable:
            self.functions = []

    # ------------------------------------------------------------------ what a line is

    def function(self, line: int) -> Function | None:
        """The function whose body has a line."""
        return next((f for f in self.functions if f.first <= line <= f.last), None)

    def statements(self, line: int) -> Iterator[Statement]:
        """The statements that have a line, the outermost first."""
        function = self.function(line)
        inside = function.body.statements if function else []
        while inside:
            found = next((s for s in inside if s.first <= line <= s.last), None)
            if found is None:
                return
            yield found
            inside = found.inner

    def whole(self, line: int) -> list[Statement]:
        """Those of them that take whole lines, and beside which others may stand."""
        return [s for s in self.statements(line) if s.around is not None and self._alone(s)]

    def _alone(self, statement: Statement) -> bool:
        before = self.bare[self._starts[statement.first - 1] : statement.begin]
        after = self.bare[statement.end : self._starts[statement.last] - 1]
        return not before.strip() and not after.strip()

    def source(self, statement: Statement) -> str:
        """The text of a statement."""
        return self.text[statement.begin : statement.end]

    def indent(self, statement: Statement) -> str:
        """What its first line begins with."""
        line = self.lines[statement.first - 1]
        return line[: len(line) - len(line.lstrip())]

    # ------------------------------------------------------------------ how something is written

    @cached_property
    def helpers(self) -> tuple[Helper, ...]:
        """The functions that are nothing but inline PTX: of the file, then of the headers beside it
        that it includes, but for those with namespaces."""
        headers = (h for h in self._headers(_DEEPEST) if not _NAMESPACE.search(h.text))
        return self.own_helpers + tuple(h for source in headers for h in source.own_helpers)

    @cached_property
    def own_helpers(self) -> tuple[Helper, ...]:
        """The functions of the file that are nothing but inline PTX."""
        return tuple(h for f in self.functions if (h := self._helper(f)) is not None)

    def _headers(self, depth: int) -> dict[Source, None]:
        """The headers that a file includes by a name in quotes, and those that they include."""
        found: dict[Source, None] = {}
        folder = os.path.dirname(self.file)
        for name in _INCLUDE.findall(self.text) if depth else ():
            source = of_file(os.path.join(folder, name))
            if source is not None:
                found |= {source: None} | source._headers(depth - 1)
        return found

    def _helper(self, function: Function) -> Helper | None:
        body = function.body.statements
        if len(body) != 1 or "__global__" in function.head:
            return None
        text = self.source(body[0])
        found = re.match(r"\s*(?:asm|__asm__)\b\s*(?:volatile|__volatile__)?\s*\(", text)
        if found is None:
            return None
        inner = text[found.end() : text.rfind(")")]
        code, *rest = _split(inner, ":")
        template = "".join(_STRING.findall(code)).replace("\\n", " ").replace("\\t", " ")
        instructions = tuple(
            " ".join(part.split()) for part in template.replace("%%", "%").split(";")
            if part.strip()
        )  # fmt: skip
        known = {*function.parameters, *function.template}
        texts = []
        for section in rest[:2]:
            for part in _parted(section):
                constraint = _CONSTRAINT.match(part.strip())
                texts.append(part.strip()[constraint.end() : -1].strip() if constraint else "")
        operands = tuple(name if name in known else None for name in texts)
        return Helper(
            function.name, instructions, operands, tuple(texts), function.parameters,
            function.template,
        )  # fmt: skip

    def arriving_elsewhere(self, line: int, ctas: Sequence[Expr | None]) -> tuple[str, ...] | None:
        """A line with a call of a helper that arrives on the own CTA's barrier, as lines that
        arrive on those of these CTAs instead (None: the own one); None if there is no such call."""
        own = self.lines[line - 1]
        found = [
            (helper, call)
            for helper in self.helpers if helper.arrives_on is not None
            for call in re.finditer(rf"(?<![\w.:>]){re.escape(helper.name)}\s*\(", own)
        ]  # fmt: skip
        if len(found) != 1:
            return None
        ((helper, call),) = found
        start = self._starts[line - 1]
        begin, end = call.start(), _matching(self.bare, start + call.end() - 1) + 1 - start
        given = _parted(own[call.end() : end - 1])
        if own[end : end + 1] != ";" or len(given) != len(helper.parameters):
            return None
        arguments = dict(zip(helper.parameters, (g.strip() for g in given), strict=True))
        peers = [cta for cta in ctas if cta is not None]
        texts = [f"{self._arriving(helper, arguments, cta)};" for cta in peers]
        if len(peers) > 2 and peers == [Const(n) for n in range(len(peers))]:
            one = self._arriving(helper, arguments, "cta")
            texts = [f"for (unsigned cta = 0; cta < {len(peers)}; ++cta) {one};"]
        if len(peers) < len(ctas):
            texts.insert(0, own[begin : end + 1])
        whole = self.whole(line)
        alone = not own[:begin].strip() and not own[end + 1 :].strip()
        if len(texts) > 1 and alone and whole and whole[-1].kind == "simple":
            return tuple(own[:begin] + text for text in texts)
        text = texts[0] if len(texts) == 1 else f"{{ {' '.join(texts)} }}"
        return (own[:begin] + text + own[end + 1 :],)

    def _arriving(self, local: Helper, given: Mapping[str, str], cta: Expr | str) -> str:
        """An arrival on another CTA's barrier: by a helper of the file, else as inline PTX."""
        barrier = local.arrives_on or ""
        rank = self._rank(cta)
        for helper in self.helpers:
            places = helper.arrives_elsewhere
            if places is not None and rank is not None and len(helper.parameters) == len(places):
                worth = dict(zip(places, (given[barrier], rank), strict=True))
                return f"{helper.name}({', '.join(worth[n] for n in helper.parameters)})"
        address = next(t for t in local.texts if barrier in _WORD.findall(t))
        address = re.sub(rf"\b{barrier}\b", lambda _: given[barrier], address)
        steps = "mapa.shared::cluster.u32 r, %0, %1;"
        operands = f'"r"({address}), "r"({rank})'
        if rank is None:
            steps = "mov.u32 c, %%cluster_ctarank; xor.b32 c, c, 1; "
            steps = f".reg .b32 c; {steps}mapa.shared::cluster.u32 r, %0, c;"
            operands = f'"r"({address})'
        arrive = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r];"
        return f'asm volatile("{{.reg .b32 r; {steps} {arrive}}}" :: {operands} : "memory")'

    def _rank(self, cta: Expr | str) -> str | None:
        """The rank of a CTA, or of the other one of two; None if only PTX can say it here."""
        if isinstance(cta, str):
            return cta
        known = constant(cta)
        if known is not None:
            return str(known)
        if self._asks_rank:
            return f"{self._asks_rank}() ^ 1"
        return None

    @property
    def _asks_rank(self) -> str:
        """The function of the file that returns the rank of the CTA in its cluster, if any."""
        for function in self.functions:
            text = self.text[function.begin : self._starts[function.last]]
            asks = [" ".join(part.split()) for part in _STRING.findall(text)]
            asked = len(asks) >= 2 and _RANK.fullmatch(asks[0]) and text.count("asm") == 1
            if asked and not function.parameters and not function.template:
                return function.name
        return ""

    @property
    def _groups(self) -> str:
        """What the file calls the namespace of cooperative groups."""
        alias = re.search(r"\bnamespace\s+(\w+)\s*=\s*cooperative_groups\s*;", self.text)
        return alias[1] if alias else "cooperative_groups"

    def spelled(self, ops: Sequence[Op]) -> tuple[str, ...] | None:
        """Statements that execute instructions of the whole, one after another: CUDA's functions,
        helpers of the file, else inline PTX; None if they need registers of the kernel's."""
        found: list[str] = []
        rest = list(ops)
        while rest:
            both = self._pair(rest)
            if both is not None:
                found.append(both)
                del rest[:2]
                continue
            text = self._one(rest.pop(0))
            if text is None:
                return None
            found.append(text)
        return tuple(found)

    def _pair(self, ops: Sequence[Op]) -> str | None:
        """One call for an arrival at the barrier of the cluster and the wait."""
        if len(ops) < 2 or not isinstance(ops[0], ClusterArrive) or not isinstance(
            ops[1], ClusterWait
        ):  # fmt: skip
            return None
        wanted = [w for op in ops[:2] if (w := written(op)) is not None]
        for helper in self.helpers:
            call = helper.call(wanted)
            if call is not None:
                return call
        if "cooperative_groups.h" in self.text:
            return f"{self._groups}::this_cluster().sync();"
        return None

    def _one(self, op: Op) -> str | None:
        match op:
            case BarSync(id=Const(0), threads=None):
                return "__syncthreads();"
            case SyncWarp(mask=mask) if constant(mask) == _FULL:
                return "__syncwarp();"
            case Fence(sem="acq_rel", scope="gpu"):
                return "__threadfence();"
            case _:
                pass
        text = written(op)
        if text is None or not all(token.lstrip("-").isdigit() for token in _words(text)[1]):
            return None
        calls = (helper.call([text]) for helper in self.helpers)
        called = next((call for call in calls if call is not None), None)
        return called or f'asm volatile("{text};" ::: "memory");'

    # ------------------------------------------------------------------ reading

    def line(self, place: int) -> int:
        """The line that a place of the text is in."""
        return bisect_right(self._starts, place)

    def start(self, line: int) -> int:
        """Where a line begins in the text."""
        return self._starts[line - 1]

    def _outside(self, place: int, end: int) -> None:
        """Looks for functions between two places."""
        begin = place
        while place < end:
            char = self.bare[place]
            if char in ";}":
                begin = place + 1
            elif char == "(":
                place = _matching(self.bare, place)
            elif char == "{":
                close = _matching(self.bare, place)
                head = self.bare[begin:place]
                last = re.sub(r"\b(?:const|noexcept|override|final)\b|->[^{}]*$", "", head).strip()
                name = re.search(r"(\w+)\s*\(", re.sub(r"__\w+__\s*\([^()]*(?:\([^()]*\))*[^()]*\)",
                                                       _blank, head))  # fmt: skip
                if last.endswith(")") and name is not None and "=" not in head.split("(")[0]:
                    body = Block(self.line(place), self.line(close), [])
                    function = Function(
                        name[1], head, place, self.line(place), self.line(close), body
                    )
                    self.functions.append(function)
                    self._block(place + 1, close, body, None)
                elif re.search(r"\b(?:namespace|extern|struct|class|union)\b", head):
                    self._outside(place + 1, close)
                place, begin = close, close + 1
            place += 1

    def _block(self, place: int, end: int, block: Block, above: Statement | None) -> None:
        while (place := self._skip(place, end)) < end:
            statement = self._statement(place, end, block, above)
            block.statements.append(statement)
            if above is not None:
                above.inner.append(statement)
            place = statement.end

    def _skip(self, place: int, end: int) -> int:
        while place < end:
            if self.bare[place].isspace() or self.bare[place] == ";":
                place += 1
            elif (label := _LABEL.match(self.bare, place, end)) is not None:
                place = label.end()
            else:
                break
        return place

    def _statement(
        self, place: int, end: int, around: Block | None, above: Statement | None
    ) -> Statement:
        word = _WORD.match(self.bare, place, end)
        kind = word[0] if word else ""
        made = Statement("simple", place, place, self.line(place), 0, around, above)
        if self.bare[place] == "{":
            made.kind, made.end = "block", self._body(place, made)
        elif kind in ("if", "for", "while", "switch"):
            made.kind = kind
            made.end = self._under(self.bare.index("(", place), end, made)
            after = self._skip_space(made.end, end)
            if kind == "if" and re.match(r"else\b", self.bare[after:end]):
                made.end = self._sub(self._skip_space(after + len("else"), end), end, made)
        elif kind in ("do", "else", "try", "catch"):
            made.kind = kind
            made.end = self._sub(self._skip_space(place + len(kind), end), end, made)
            if kind == "do":
                made.end = self.bare.index(";", made.end, end) + 1
        else:
            made.end = self._simple(place, end)
        made.last = self.line(made.end - 1)
        return made

    def _under(self, bracket: int, end: int, made: Statement) -> int:
        """The statement that a condition in brackets is for."""
        return self._sub(self._skip_space(_matching(self.bare, bracket) + 1, end), end, made)

    def _sub(self, place: int, end: int, made: Statement) -> int:
        if place < end and self.bare[place] == "{":
            return self._body(place, made)
        if place < end and self.bare[place] == ";":
            return place + 1
        statement = self._statement(place, end, None, made)
        made.inner.append(statement)
        return statement.end

    def _body(self, place: int, made: Statement) -> int:
        close = _matching(self.bare, place)
        block = Block(self.line(place), self.line(close), [])
        self._block(place + 1, close, block, made)
        return close + 1

    def _skip_space(self, place: int, end: int) -> int:
        while place < end and self.bare[place].isspace():
            place += 1
        return place

    def _simple(self, place: int, end: int) -> int:
        while place < end:
            if self.bare[place] in _OPENS:
                place = _matching(self.bare, place)
            elif self.bare[place] == ";":
                return place + 1
            place += 1
        return end


class _Unreadable(Exception):
    """Brackets do not match."""


def of_file(file: str) -> Source | None:
    """A CUDA source; None if it is none, cannot be read, or is not to be shown."""
    if not file.endswith(CUDA_ENDINGS):
        return None
    lines = source_lines(file)
    return _parsed(file, lines) if lines else None


@cache
def _parsed(file: str, lines: tuple[str, ...]) -> Source:
    return Source(file, lines)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _matching(text: str, place: int) -> int:
    """The bracket that closes the one here, in a text without comments and literals."""
    stack = [_OPENS[text[place]]]
    for at in range(place + 1, len(text)):
        char = text[at]
        if char in _OPENS:
            stack.append(_OPENS[char])
        elif char in ")]}":
            if stack.pop() != char:
                raise _Unreadable
            if not stack:
                return at
    raise _Unreadable


def _split(text: str, mark: str) -> list[str]:
    """The parts between marks that stand in no brackets and no literals."""
    parts, depth = [""], 0
    for char, bare in zip(text, _NOISE.sub(_blank, text), strict=True):
        depth += (bare in "([{") - (bare in ")]}")
        if bare == mark and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _parted(text: str) -> list[str]:
    """What commas part that are in no brackets."""
    return [part for part in _split(text, ",") if part.strip()]


def _plain(code: str) -> str:
    """An opcode without what does not matter: ``bar`` is ``barrier`` with all lanes."""
    words = code.split(".")
    if words[0] == "bar" and words[1:2] != ["warp"]:
        words = ["barrier", *words[1:]]
    return ".".join(w for w in words if w not in ("aligned", "acquire", "release", "cta"))


def _words(text: str) -> tuple[str, list[str]]:
    """An instruction as its opcode and operands."""
    code, _, rest = text.partition(" ")
    return code, [token.strip() for token in rest.split(",") if token.strip()]
