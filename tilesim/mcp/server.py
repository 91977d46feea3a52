"""The tools of the server: each is a command of the command line, and answers with its JSON."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Annotated, Any, Literal, NoReturn

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from tilesim.loader import STDIN, is_code
from tilesim.mcp.child import Children, CommandError
from tilesim.records import dataclass
from tilesim.version import __version__

INSTRUCTIONS = """
tilesim checks the synchronisation of Hopper and Blackwell GPU kernels without a GPU: mbarriers,
TMA, wgmma, tcgen05, clusters. It proves that a kernel works on every schedule, or shows the
schedule that breaks it.

A target is file.py, file.py::kernel, package.module::kernel, file.tile or file.mir. It may also be
file.ptx with its launch description file.json beside it. A cubin or program with PTX in it is
checked as a .ptx file is; a core dump of a GPU describes its launches itself. A .py target is run:
check only code that you would run.

Check a kernel after each edit. Verdicts: proved and exhausted are proofs; failed comes with
findings, their lines, causes and a witness; bounded: nothing was found, and why that is no proof.
The tool suggest looks for repairs. The tool explain says what a rule means (deadlock, race, A13).
The tool trace shows what waits for what and when.
"""

Targets = Annotated[
    list[str], Field(min_length=1, description="Files, folders or kernels: file.py::kernel.")
]
Target = Annotated[str, Field(description="One kernel: file.py::kernel, file.tile, file.ptx.")]
Params = Annotated[
    dict[str, str | int | float | bool] | None,
    Field(description="Values of the kernel's parameters, by name."),
]
Launches = Annotated[
    list[str] | None,
    Field(description="Launch descriptions of a PTX kernel, if not beside it."),
]
Strict = Annotated[
    Literal["ptx", "practice"],
    Field(description="ptx: the text as written. practice: accept what shipping kernels rely on."),
]
Seconds = Annotated[
    float | None,
    Field(gt=0, description="Time for the whole call, in seconds; at most the server's limit."),
]
_RUNS = ToolAnnotations(destructive_hint=False, open_world_hint=False)
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
#: the time of a call that asks for none, in seconds
DEFAULT_SECONDS = 60.0


@dataclass(frozen=True)
class Limits:
    """``seconds``: what a call may take at most; ``code``: Python is run if it is a target."""

    seconds: float
    code: bool


class Tools:
    """What the tools do; their docstrings are what a client is told."""

    def __init__(self, limits: Limits, children: Children) -> None:
        self._limits = limits
        self._children = children

    async def check(
        self,
        targets: Targets,
        params: Params = None,
        launch: Launches = None,
        strict: Strict = "practice",
        for_all: Annotated[
            list[str] | None,
            Field(description="Prove it for every value of a parameter: NAME or NAME=1..64."),
        ] = None,
        sass: Annotated[
            bool, Field(description="Also compare the machine code with the PTX: `machine_code`.")
        ] = False,
        seconds: Seconds = None,
    ) -> dict[str, Any]:
        """Check kernels for deadlocks, races and misuse of barriers on every schedule.

        Returns the JSON of `tilesim check --format json`: per kernel a verdict, what it covers,
        findings with lines, causes and fixes, reasons, and diagnostics of what is rejected.
        """
        options = ("--sass",) if sass else ()
        return await self._check(targets, params, launch, strict, for_all, seconds, options)

    async def suggest(
        self,
        targets: Targets,
        params: Params = None,
        launch: Launches = None,
        strict: Strict = "practice",
        search: Annotated[
            float, Field(gt=0, description="How long to look for repairs, in seconds each.")
        ] = 10.0,
        seconds: Seconds = None,
    ) -> dict[str, Any]:
        """Check kernels, and look for repairs of those that fail: edits that are proved to mend it.

        Returns what `check` returns; results of failed kernels have `repairs` with patches.
        """
        options = (f"--suggest={search:f}s",)
        return await self._check(targets, params, launch, strict, None, seconds, options)

    async def show(
        self,
        target: Target,
        params: Params = None,
        launch: Launches = None,
        mir: Annotated[
            bool, Field(description="As the machine runs it; the only form that PTX has.")
        ] = False,
        seconds: Seconds = None,
    ) -> dict[str, Any]:
        """Show a kernel as a list of instructions, with the line where each was written."""
        options = ("--locations", *(("--mir",) if mir else ()))
        arguments = self._about([target], params, launch)
        return await self._run("show", (*options, *arguments), seconds)

    async def trace(
        self,
        target: Target,
        params: Params = None,
        launch: Launches = None,
        strict: Strict = "practice",
        witness: Annotated[
            dict[str, Any] | None,
            Field(description="Repeat the schedule of this witness, from a finding of check."),
        ] = None,
        events: Annotated[
            bool, Field(description="Also return the trace in Chrome's format, as `trace`.")
        ] = False,
        seconds: Seconds = None,
    ) -> dict[str, Any]:
        """Run one schedule and show its timeline: what works, what waits, what waits for ever.

        `text` has lines for each cluster, `findings` what is wrong in that run.
        """
        arguments = self._about([target], params, launch)
        with TemporaryDirectory(prefix="tilesim-") as folder:
            output, schedule = Path(folder, "trace.json"), Path(folder, "witness.json")
            options = [f"--strict={strict}", f"--output={output}"]
            if witness is not None:
                schedule.write_text(json.dumps(witness), encoding="utf-8")
                options.append(f"--replay={schedule}")
            document = await self._run("trace", (*options, *arguments), seconds)
            del document["output"]
            if events:
                document["trace"] = json.loads(output.read_text(encoding="utf-8"))
        return document

    async def explain(
        self,
        rules: Annotated[
            list[str] | None,
            Field(description="Names of findings (deadlock) or numbers of rules (A13)."),
        ] = None,
    ) -> dict[str, Any]:
        """Say what rules mean, with a program that breaks each and its fix; without names, list
        them."""
        return await self._run("explain", ("--", *(rules or ())), None)

    async def _check(
        self, targets: list[str], params: Params, launch: Launches, strict: str,
        for_all: list[str] | None, seconds: float | None, options: tuple[str, ...],
    ) -> dict[str, Any]:  # fmt: skip
        document = await self._run(
            "check",
            (
                *options,
                f"--strict={strict}",
                f"--time-limit={self._time(seconds):f}s",
                *(f"--for-all={text}" for text in for_all or ()),
                *self._about(targets, params, launch),
            ),
            seconds,
        )
        errors = [result["error"] for result in document["results"]]
        if errors and all(errors):
            raise ToolError("\n".join(errors))
        return document

    def _about(self, targets: list[str], params: Params, launch: Launches) -> tuple[str, ...]:
        """What the command line has to be told about targets; no text of a client's is an option.

        Raises:
            ToolError: a target is none for a server.
        """
        for target in targets:
            if target == STDIN:
                raise ToolError("standard input is no target here: name a file")
            if not self._limits.code and is_code(target):
                raise ToolError(f"{target} is code, which this server does not run (--data-only)")
        values = {name: str(value) for name, value in (params or {}).items()}
        said = (f"--param={name}={value}" for name, value in values.items())
        return (*said, *(f"--launch={path}" for path in launch or ()), "--", *targets)

    def _time(self, seconds: float | None) -> float:
        return min(seconds or DEFAULT_SECONDS, self._limits.seconds)

    async def _run(
        self, command: str, arguments: tuple[str, ...], seconds: float | None
    ) -> dict[str, Any]:
        try:
            return await self._children.run(
                (command, "--format=json", *arguments), self._time(seconds)
            )
        except CommandError as error:
            raise ToolError(str(error)) from None


def serve(limits: Limits, at_once: int) -> None:
    """Serves clients over standard input and output until it is closed."""
    children = Children(at_once)
    tools = Tools(limits, children)
    server = MCPServer(
        "tilesim", instructions=INSTRUCTIONS.strip(), version=__version__, log_level="WARNING"
    )
    for tool in (tools.check, tools.suggest, tools.show, tools.trace):
        server.add_tool(tool, annotations=_RUNS)
    server.add_tool(tools.explain, annotations=_READS)

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        children.kill()
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        server.run("stdio")
    finally:
        children.kill()
