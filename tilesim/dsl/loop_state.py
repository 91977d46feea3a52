"""State of Python that a loop of the kernel changes.

Python runs the body of ``with k.loop(...)`` once, to record it. What it has changed by then (a
variable, an element of a list, how far an iterator is) is what a second turn would begin with.

* A number or an expression in a variable that the body reads and then sets (``phase ^= 1``) is an
  error when the loop ends. The syntax tree of the function says what is read and set.
* What the functions being executed reach is compared before and after the body. Where it differs,
  the function of the kernel is run once more, with that put in place when it enters the loop: the
  body has to come out as before. Names that are counted up, and counts of what was recorded, change
  nothing in it; ``stages[state.index]`` and ``next(phases)`` do.
"""

from __future__ import annotations

import ast
import io
import linecache
import pickle
import random
import re
import sys
import warnings
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import redirect_stdout, suppress
from copy import deepcopy
from enum import Enum
from functools import cache, lru_cache, partial
from itertools import chain
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, NamedTuple, Protocol

from tilesim.arith.types import DTYPES
from tilesim.errors import InvalidProgram, reject
from tilesim.ir.expr import Expr, Var, named
from tilesim.ir.loc import Loc, shortened, user_frames
from tilesim.records import dataclass, field, replace

#: how a value is reached: the kind of each step, and the name, key or index
Step = tuple[str, Any]
Path = tuple[Step, ...]
#: the values in a thing; things that hold values, and these
Items = dict[Step, Any]
Reached = dict[Path, tuple[Any, Items]]

#: regions whose body the kernel executes more than once
LOOPS = ("loop", "while_")
#: loops looked at per kernel, things per loop, elements per thing: what is larger is not a kernel's
#: state; and how far an iterator is moved to where another one is
_LOOPS, _THINGS, _ELEMENTS, _DEPTH, _AHEAD = 64, 2000, 4096, 6, 256
_NUMBERS = (bool, int, float, Expr)
_PLAIN = (bool, int, float, complex, str, bytes, range, type(None), type(Ellipsis), slice, Enum)
_SIDE_BY_SIDE = (list, tuple, deque, bytearray, array)
#: what leads to other things, and by which attributes
_LEADS = (MethodType, BuiltinMethodType, partial, property, staticmethod, classmethod)
_LEADING = ("__func__", "__self__", "func", "args", "keywords", "fget", "fset")
#: where statements of the kernel have others
_PARTS = ("body", "then", "orelse")
#: parts of Python that have variables of their own, and those that may be left out
_SCOPES = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp,
    ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
_CONDITIONAL = (ast.If, ast.IfExp, ast.While, ast.Try, ast.Match, ast.BoolOp)
#: a name in what `repr` shows of a declaration, or of what else has one
_NAMED = re.compile(r"(\(|, )name='([^']*)'")
_ABSENT = object()


class Declares(Protocol):
    """What records the kernel: the builder."""

    @property
    def declared(self) -> Mapping[str, object]:
        """What is declared so far, by name, in order."""
        ...

    @property
    def last(self) -> Any:
        """The statement that was recorded last."""
        ...

    iterations: Iterations


class Place(NamedTuple):
    """A function being executed, and where it was when the loop began."""

    frame: FrameType
    line: int
    instruction: int


class Change(NamedTuple):
    """A value that a turn of a loop leaves different, or takes out."""

    path: Path
    before: Any
    after: Any

    @property
    def place(self) -> str:
        """How Python calls it: ``state.phases[0]``."""
        text = ""
        for kind, name in self.path:
            if kind in ("local", "cell", "global"):
                text = str(name)
            elif self.path[-1][0] != "random":
                text += f"[{name!r}]" if kind == "item" else f".{name}" if kind == "attr" else ""
        return text.lstrip(".") or "a variable"

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable of a function being executed."""
        return [kind for kind, _ in self.path] == ["frame", "local"]

    @property
    def is_new_variable(self) -> bool:
        """Whether it is one that was not set before the loop."""
        return self.before is _ABSENT and self.is_variable

    def __str__(self) -> str:
        match self.path[-1][0]:
            case "iterator":
                return f"an iteration of the loop advances the iterator {self.place}"
            case "random":
                return f"an iteration of the loop changes the numbers that {self.place} gives next"
        before, after = _said(self.before), _said(self.after)
        return f"{self.place} is {before} before an iteration of the loop and {after} after it"


@dataclass
class Iteration:
    """One turn of a loop as it is recorded: what was there before it, and what has changed.

    ``names``: see `_form`. ``partly``: some of the changes cannot be put in place.
    """

    number: int
    builder: Declares
    names: Mapping[str, str]
    places: list[Place] = field(default_factory=list)
    before: Reached = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    partly: bool = False
    loop: Any = None


class _Enough(BaseException):
    """The loop that was to be recorded again is; passes what catches exceptions."""


@dataclass
class Iterations:
    """The loops of one recording; ``again``: what is put in place when one of them begins."""

    again: Iteration | None = None
    repeatable: bool = False
    changed: list[Iteration] = field(default_factory=list)
    _count: int = 0

    def begins(self, builder: Declares) -> Iteration | None:
        """The loop that begins, and what can be reached; None if another one is recorded again."""
        self._count += 1
        iteration = Iteration(self._count, builder, _numbers(builder.declared))
        if self.again is None:
            frames = user_frames() if self._looks(iteration) else user_frames()[:1]
            iteration.places = [Place(frame, frame.f_lineno, frame.f_lasti) for frame in frames]
            iteration.before = self._reached(iteration)
        elif self.again.number == iteration.number:
            _put_all(self.again, builder)
        else:
            return None
        return iteration

    def ends(self, iteration: Iteration) -> None:
        """Notes what the body has changed, when the loop has been recorded.

        Raises:
            InvalidProgram: it sets a number that it has read.
        """
        names, iteration.names = iteration.names, _numbers(iteration.builder.declared)
        iteration.loop = iteration.builder.last
        if self.again is not None:
            self.changed.append(iteration)
            raise _Enough
        for change in _differences(iteration.before, self._reached(iteration)):
            path, old, new = change
            if change.is_new_variable and not iteration.changes and not iteration.partly:
                break  # a second turn that is like the first sets it before it reads it
            uses = _uses_of(path, iteration.places)
            if (uses and uses[0].sets and uses[0].sure) or _form(old, names) == _form(new, names):
                continue
            _check_number(change, iteration.places[0], uses, self._looks(iteration))
            if _form(new, names) == _form(new, iteration.names):
                iteration.changes.append(change)
            else:  # the turn itself has declared it: it is not there when it begins
                iteration.partly = True
        if self._looks(iteration) and iteration.changes:
            iteration.changes.sort(key=lambda change: len(change.path))
            self.changed.append(iteration)

    def _looks(self, iteration: Iteration) -> bool:
        """Whether the loop is to be recorded again if it changes something."""
        return self.repeatable and iteration.number <= _LOOPS

    def _reached(self, iteration: Iteration) -> Reached:
        frames = [place.frame for place in iteration.places]
        return _reach(frames, _THINGS if self._looks(iteration) else 1)


def _differences(old: Reached, new: Reached) -> list[Change]:
    """The values that are not the same, of things that are there before and after; new variables
    of functions are last."""
    found = []
    for path in old:
        before, after = old[path][1], new.get(path, old[path])[1]
        for step in {**before, **after}:
            a, b = before.get(step, _ABSENT), after.get(step, _ABSENT)
            if a is not b and _is_value(a) and _is_value(b):
                found.append(Change((*path, step), a, b))
    return sorted(found, key=lambda change: change.is_new_variable)


def check_iterations(first: Declares, record: Callable[[Iterations], Declares]) -> None:
    """Rejects a kernel that would record something else in another turn of one of its loops.

    ``record``: runs the kernel's function with a new builder that has these turns.

    Raises:
        InvalidProgram: it says what changes, and what instruction depends on that.
    """
    for iteration in first.iterations.changed:
        whole = _differs(iteration, record)
        if whole is not None:
            each = (
                (c, _differs(replace(iteration, changes=[c]), record)) for c in iteration.changes
            )
            change, loc = next((one for one in each if one[1]), (iteration.changes[0], whole))
            is_number = isinstance(change.before, int)
            raise _rejected(
                f"{change}, and this line depends on it", loc or whole, change.place,
                f'let the kernel keep it: with `x = k.var("x", {int(change.before)})` in its '
                "place, `x += 1` and the like are executed in every iteration; or "
                if is_number else "",
            )  # fmt: skip


def _differs(iteration: Iteration, record: Callable[[Iterations], Declares]) -> Loc | None:
    """Where the loop is recorded differently if it begins with the changes; None if nowhere."""
    again = Iterations(iteration, repeatable=True)
    traced = sys.gettrace()
    with redirect_stdout(io.StringIO()), suppress(Exception):
        try:
            record(again)
        except _Enough:
            pass
        except (StopIteration, LookupError, InvalidProgram):
            # the second turn would end the kernel
            return None if iteration.partly else iteration.loop.loc
        finally:
            sys.settrace(traced)
    for then in again.changed:
        pairs = zip(_lines(iteration.loop, iteration), _lines(then.loop, then), strict=False)
        return next((loc or there for (a, loc), (b, there) in pairs if a != b), None)
    return None


def _lines(statement: Any, iteration: Iteration) -> Iterator[tuple[str, Loc | None]]:
    """The form of each statement in a loop, with its line; those in it follow."""
    inside = {part: getattr(statement, part) for part in _PARTS if hasattr(statement, part)}
    head = replace(statement, **dict.fromkeys(inside, ())) if inside else statement
    yield _form(head, iteration.names), statement.loc
    for part in inside.values():
        for inner in part:
            yield from _lines(inner, iteration)
        yield "", None


def _form(value: object, names: Mapping[str, str]) -> str:
    """A value or statement; declarations are told apart by their numbers, not their names. Names
    that are not the first of its fields are labels for findings."""
    return _NAMED.sub(lambda m: names.get(m[2], m[0]) if m[1] == "(" else "", repr(value))


def _numbers(declared: Mapping[str, object]) -> dict[str, str]:
    """The number of each declaration among those of its kind."""
    counts = Counter[str]()
    numbers = {}
    for name, thing in declared.items():
        kind = type(thing).__name__
        numbers[name] = f"{kind} {counts[kind]}"
        counts[kind] += 1
    return numbers


def _rejected(said: str, loc: Loc, place: str, keep: str) -> InvalidProgram:
    return reject(
        f"{said}: Python runs the body of a loop once, to record it", loc, rule="region",
        fix=f"{keep}compute it from the loop's variable; or unroll the loop with Python's `for`; "
        f"or, if it is to be the same in all iterations, set {place} in the loop before it is used",
    )  # fmt: skip


def _said(value: object) -> str:
    if value is _ABSENT:
        return "unset"
    return str(value) if isinstance(value, Expr) else named(value)


# ------------------------------------------------------------------ variables: the syntax tree


class _Use(NamedTuple):
    """A variable is read, or set; ``sure``: whatever the conditions in the function are."""

    name: str
    sets: bool
    sure: bool
    line: int
    column: int


def _check_number(change: Change, place: Place, uses: list[_Use] | None, again: bool) -> None:
    """Rejects a number in a variable of the function with the loop that its body reads, then sets.

    ``again``: the loop is recorded once more, which finds what the syntax tree does not say.
    """
    (kind, name), code, (old, new) = change.path[-1], place.frame.f_code, change[1:]
    if change.path[:-1] != (("frame", 0),) or kind != "local":
        return
    if not (isinstance(old, _NUMBERS) and isinstance(new, _NUMBERS)) or old == new:
        return
    if uses and uses[0].sets:
        return
    line = next((use.line for use in uses or () if use.sets), None)
    # not set in the tree: by a function in this one, or there is no tree
    if line is None and (again or (uses is not None and name not in code.co_varnames)):
        return
    raise _rejected(
        f"{name} is {_said(old)} before this line and {_said(new)} after it in every iteration of "
        f"the loop", Loc(shortened(code.co_filename), line or place.line, code.co_name), name,
        f"set the register with `k.assign({name}, ...)`; or " if isinstance(old, Var) else
        f'let the kernel keep it: with `{name} = k.var("{name}", {_said(old)})` before the loop, '
        f"`{name} += 1` and the like are executed in every iteration; or ",
    )  # fmt: skip


def _uses_of(path: Path, places: list[Place]) -> list[_Use] | None:
    """How a loop uses a variable of a function, in order; None: it is none, or without source."""
    if [kind for kind, _ in path] != ["frame", "local"]:
        return None
    (frame, line, instruction), name = places[path[0][1]], path[1][1]
    if frame.f_lasti == instruction:  # it has the whole loop in a call
        return []
    uses = _uses_behind(frame.f_code, line)
    return uses.get(name, []) if uses else None


@lru_cache(maxsize=256)
def _uses_behind(code: CodeType, line: int) -> dict[str, list[_Use]]:
    """By name, how a function uses its variables behind a line, or behind what a ``with`` statement
    opens first there."""
    linecache.checkcache(code.co_filename)
    function, begins = _function_at(_tree("".join(linecache.getlines(code.co_filename))), line)
    found: dict[str, list[_Use]] = {}
    for use in chain.from_iterable(map(_uses, function.body)):
        # functions in it may read a variable before it is set
        sure = use.sure and use.name not in code.co_cellvars
        if use[-2:] >= begins:
            found.setdefault(use.name, []).append(use._replace(sure=sure))
    return found


@lru_cache(maxsize=64)
def _tree(text: str) -> ast.Module:
    with suppress(SyntaxError, ValueError):
        return ast.parse(text)
    return ast.Module([], [])


def _function_at(tree: Any, line: int) -> tuple[Any, tuple[int, int]]:
    """The function around a line of a module, and where what follows the line begins there: behind
    the first loop that a ``with`` statement opens, or what it opens first."""
    begins: Any = (line + 1, 0)
    function = node = tree
    while node is not None:
        function = node if isinstance(node, _SCOPES[:2]) else function
        opened = [item.context_expr for item in getattr(node, "items", ())]
        opened = [call for call in opened if _is_at(call, line)]
        loops = [c for c in opened if getattr(getattr(c, "func", None), "attr", None) in LOOPS]
        for first in (loops or opened)[:1]:
            begins = first.end_lineno, first.end_col_offset
        node = next((n for n in ast.iter_child_nodes(node) if _is_at(n, line)), None)
    return function, begins


def _is_at(node: Any, line: int) -> bool:
    return hasattr(node, "lineno") and bool(node.lineno <= line <= node.end_lineno)


def _uses(node: Any, sure: bool = True) -> Iterator[_Use]:
    """How a part of a function uses the function's variables, in order; functions in it read."""
    at = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    if isinstance(node, ast.Name):
        yield _Use(node.id, not isinstance(node.ctx, ast.Load), sure, *at)
        return
    if isinstance(node, _SCOPES):
        inner = list(ast.walk(node))
        names = [part for part in inner if isinstance(part, ast.Name)]
        own = {part.id for part in names if isinstance(part.ctx, ast.Store)}
        own |= {part.arg for part in inner if isinstance(part, ast.arg)}
        # defaults, and what is iterated over, are evaluated outside
        given = [part for part in inner if isinstance(part, ast.arguments)][:1]
        outside = [part for one in given for part in (*one.defaults, *one.kw_defaults) if part]
        outside += [part.iter for part in getattr(node, "generators", ())[:1]]
        for part in outside:
            yield from _uses(part, sure)
        yield from (_Use(part.id, False, sure, *at) for part in names if part.id not in own)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield _Use(node.target.id, False, sure, *at)
    sure = sure and not isinstance(node, _CONDITIONAL)
    kind: Any = type(node)
    for name in _in_order(kind):
        part = getattr(node, name)
        if isinstance(part, str) and name in ("name", "asname", "rest"):
            yield _Use(part, True, sure, *at)
        elif not isinstance(node, _SCOPES):
            for inner in part if isinstance(part, list) else (part,):
                if getattr(inner, "_fields", ()):
                    yield from _uses(inner, sure)


@cache
def _in_order(kind: type[ast.AST]) -> list[str]:
    """The fields of a kind of nodes: what is assigned is evaluated before it is."""
    return sorted(kind._fields, key=lambda name: name not in ("value", "iter"))


# ------------------------------------------------------------------ what Python reaches


def _reach(frames: list[FrameType], most: int) -> Reached:
    """The things that functions being executed reach, the innermost first."""
    found: Reached = {}
    seen: set[int] = set()
    todo: deque[tuple[Path, Any]] = deque(((("frame", n),), f) for n, f in enumerate(frames))
    while todo and len(found) < most:
        path, thing = todo.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        items = None
        with suppress(Exception):  # users' objects may do anything when they are looked at
            items = _items(thing)
        if items is not None:
            found[path] = thing, items
            todo.extend(((*path, step), v) for step, v in items.items() if not _is_value(v))
    return found


def _items(thing: Any) -> Items | None:
    """The values that a thing holds; None for what is not looked into."""
    kind = type(thing)
    if isinstance(thing, FunctionType):
        return _of_function(thing) if _is_users(thing.__module__) else None
    if isinstance(thing, FrameType):
        own: Items = {("local", name): value for name, value in thing.f_locals.items()}
        return own | _globals(thing.f_code, thing.f_globals)
    if isinstance(thing, _LEADS):
        return {("", name): getattr(thing, name) for name in _LEADING if hasattr(thing, name)}
    if isinstance(thing, set):
        return {("members", ""): frozenset(thing)}
    if _is_iterator(thing):
        inner = getattr(thing, "gi_yieldfrom", None)
        return {("iterator", ""): _where(thing), ("", "gi_yieldfrom"): inner}
    if kind.__module__.startswith("numpy.random") or isinstance(thing, random.Random):
        if hasattr(thing, "bit_generator"):
            return {("", ""): thing.bit_generator}
        return {("random", ""): pickle.dumps(thing.__getstate__())}
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(thing, _SIDE_BY_SIDE):
        pairs = enumerate(thing)
    elif _is_array(thing):
        pairs = enumerate(thing.ravel().tolist())
    elif isinstance(thing, MutableMapping) and kind.__module__ in ("builtins", "collections"):
        pairs = thing.items()
    else:
        return _attributes(thing)
    return {("item", key): v for key, v in pairs} if len(thing) <= _ELEMENTS else None


def _attributes(thing: Any) -> Items | None:
    """Those of modules, classes and objects of users."""
    if isinstance(thing, ModuleType) and not _is_users(thing.__name__):
        # the functions of `random` and of `numpy.random` share a generator
        return {("", "random"): vars(thing).get("random")}
    if isinstance(thing, ModuleType | type):
        kind, states = thing, [vars(thing)]
    else:
        kind, state = type(thing), object.__getstate__(thing)
        states = [part for part in (state if isinstance(state, tuple) else (state,)) if part]
    if not (isinstance(kind, ModuleType) or kind is SimpleNamespace or _is_users(kind.__module__)):
        return None
    held = {name: value for part in states for name, value in part.items()}
    items: Items = {("attr", n): v for n, v in held.items() if not n[:2] == n[-2:] == "__"}
    return items if kind is thing else {**items, ("", "__class__"): kind}


def _of_function(function: FunctionType) -> Items:
    items = _globals(function.__code__, function.__globals__)
    for name, cell in _cells(function).items():
        with suppress(ValueError):  # not set yet
            items["cell", name] = cell.cell_contents
    return items


def _cells(function: FunctionType) -> dict[str, CellType]:
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def _globals(code: CodeType, values: dict[str, Any]) -> Items:
    """The variables of the module that a function names."""
    return {("global", n): values[n] for n in _names(code) if n in values}


@cache
def _names(code: CodeType) -> tuple[str, ...]:
    inner = (name for c in code.co_consts if isinstance(c, CodeType) for name in _names(c))
    return tuple(dict.fromkeys((*code.co_names, *inner)))


def _is_iterator(thing: object) -> bool:
    kind = type(thing)
    return hasattr(kind, "__next__") and kind.__module__ in ("builtins", "itertools")


def _where(thing: Any, depth: int = 0) -> Any:
    """How far an iterator is, as values that can be compared."""
    if _is_value(thing) or depth > _DEPTH:
        return thing if _is_value(thing) else id(thing)
    if isinstance(thing, list | tuple):
        return tuple(_where(item, depth + 1) for item in thing[:_ELEMENTS])
    if isinstance(thing, GeneratorType):
        frame = thing.gi_frame
        return frame and _where((frame.f_lasti, *frame.f_locals.items()), depth + 1)
    if _is_iterator(thing):
        with warnings.catch_warnings(), suppress(TypeError):
            warnings.simplefilter("ignore", DeprecationWarning)
            return _where(thing.__reduce__()[1:], depth + 1)
    return id(thing)


def _is_array(thing: object) -> bool:
    return type(thing).__module__ == "numpy" and hasattr(thing, "flat")


def _is_value(thing: object) -> bool:
    """Whether it is a value that does not change: a number, a text, what the DSL gives."""
    if isinstance(thing, tuple | frozenset):
        return all(map(_is_value, thing))
    kind: Any = type(thing)
    return thing is _ABSENT or _is_of_values(kind)


@cache
def _is_of_values(kind: Any) -> bool:
    module = str(kind.__module__)
    if module.partition(".")[0] == "tilesim":
        return not _is_users(module)
    # a number of NumPy's; its arrays have elements that can be set
    number = module == "numpy" and hasattr(kind, "item") and not hasattr(kind, "__setitem__")
    return number or issubclass(kind, _PLAIN)


@cache
def _installed() -> tuple[str, ...]:
    """The folders of Python and of installed packages."""
    import sysconfig

    return tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@cache
def _is_users(module: str | None) -> bool:
    """Whether a module is neither Python's, nor tilesim's, nor installed; None: of no module."""
    name = module or "__main__"
    root = name.partition(".")[0]
    if root == "tilesim":
        return name.startswith("tilesim.kernels.")
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    if name == "__main__":
        return True
    return root not in sys.stdlib_module_names and not file.startswith(_installed())


# ------------------------------------------------------------------ what is put in place


def _put_all(iteration: Iteration, builder: Declares) -> None:
    """Makes what functions reach now as a turn in another recording has left it."""
    here, there = iteration.builder.declared, builder.declared
    copies: dict[int, Any] = {id(thing): thing for thing in DTYPES.values()}
    copies |= {id(here[name]): there[name] for name in here.keys() & there.keys()}
    copies |= {id(iteration.builder): builder, id(_ABSENT): _ABSENT}
    reached = _reach(user_frames(), _THINGS)
    gone = [change for change in iteration.changes if change.after is _ABSENT]
    for path, _, value in (*gone[::-1], *(c for c in iteration.changes if c.after is not _ABSENT)):
        try:
            _put(reached[path[:-1]][0], *path[-1], deepcopy(value, dict(copies)))
        except (LookupError, AttributeError, TypeError, ValueError):
            iteration.partly = True


def _put(thing: Any, kind: str, key: Any, value: Any) -> None:
    """Sets a value that a thing holds, or takes it out."""
    gone = value is _ABSENT
    match kind:
        case "item" if _is_array(thing):
            thing.flat[key] = value
        case "item" if gone:
            del thing[key]
        case "item" if not isinstance(thing, Mapping) and key == len(thing):
            thing.append(value)
        case "item":
            thing[key] = value
        case "members":
            thing.clear()
            thing.update(value)
        case "local" if not gone:
            _set_local(thing, key, value)
        case "global":
            own = thing.f_globals if isinstance(thing, FrameType) else thing.__globals__
            _put(own, "item", key, value)
        case "cell" if not gone:
            _cells(thing)[key].cell_contents = value
        case "iterator":
            for _ in range(_AHEAD):
                if _where(thing) == value:
                    break
                next(thing, None)
        case "random":
            thing.__setstate__(pickle.loads(value))
        case "attr":
            base: Any = type if isinstance(thing, type) else object
            base.__delattr__(thing, key) if gone else base.__setattr__(thing, key, value)
        case _:
            raise LookupError(kind)


class _Variables(dict[str, Any]):
    """The trace function of a function being executed, which sets these variables there."""

    def __call__(self, frame: FrameType, event: str, given: object) -> None:
        frame.f_locals.update(self)
        frame.f_trace = None


def _set_local(frame: FrameType, name: str, value: Any) -> None:
    """Sets a variable of a function; before Python 3.13 only a trace function can."""
    if sys.version_info >= (3, 13):
        frame.f_locals[name] = value
        return
    if not isinstance(frame.f_trace, _Variables):
        frame.f_trace, frame.f_trace_opcodes = _Variables(), True
    frame.f_trace[name] = value
    sys.settrace(lambda *_: None)
