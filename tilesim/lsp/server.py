"""The server: which documents are checked when.

A document is checked when it is opened and when it is saved, as the command line does it, in a
process of its own, which ends when the text changes. Python is run only if the client says that the
workspace is trusted. Only what is in files is checked: a text with changes that are not saved is
not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from tilesim.files import MAX_SOURCE
from tilesim.loader import imports_tilesim
from tilesim.lsp.captures import captured
from tilesim.lsp.findings import INFORMATION, Files, Note, Place, kernel_line, kernel_name, notes
from tilesim.lsp.text import Text, on_disk
from tilesim.lsp.view import Hovers, View
from tilesim.mcp.child import Children, CommandError
from tilesim.records import dataclass
from tilesim.version import __version__
from tilesim.wording import count

#: how long after an event a check begins, for further events; and how long a client may take to
#: show progress: in seconds
DEBOUNCE, ANSWER = 0.3, 5.0
#: processes at once, and kernels of which repairs are looked for
_AT_ONCE, _REPAIRED = 2, 8
_PYTHON, _PTX, _TEXTS = ".py", ".ptx", (".tile", ".mir")
_CUDA = (".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc", ".cxx", ".inl")
_UNTRUSTED = (
    "not checked: a check runs this file, and the workspace is not trusted (trust it in the "
    "editor, or start tilesim lsp --trust)"
)
_FOREIGN = (
    "not checked: a check runs this file, and it is not part of the workspace (outside, hidden "
    "or installed)"
)


@dataclass(frozen=True)
class Options:
    """``trust``: Python of the workspace is run without being asked; seconds of a check, and of the
    search for repairs of a kernel."""

    trust: bool
    seconds: float
    repair_seconds: float


@dataclass(frozen=True)
class Plan:
    """The targets that a document stands for, or ``why`` it is not checked, at a ``line``.

    ``captures``: it depends on PTX beside it.
    """

    targets: tuple[str, ...] = ()
    why: str = ""
    line: int = 1
    captures: bool = False


class Server(LanguageServer):
    """The server of one client."""

    def __init__(self, options: Options, children: Children) -> None:
        super().__init__("tilesim", __version__)
        self.view = View(self)
        self._options = options
        self._children = children
        self._trusted = options.trust
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._captured: set[str] = set()
        #: of progress that is shown: the document that is checked
        self._tokens: dict[str | int, str] = {}

    # ------------------------------------------------------------------ when checks run

    def trust(self, said: object) -> None:
        """What a client says of its workspace: ``{"trusted": true}``."""
        if isinstance(said, dict) and isinstance(said.get("trusted"), bool):
            before, self._trusted = self._trusted, self._options.trust or said["trusted"]
            if before != self._trusted:
                self.start(*self.view.open)

    def start(self, *uris: str) -> None:
        """Checks documents that are open a little later, instead of what checks them now."""
        for uri in self.view.open.keys() & {*uris}:
            self.stop(uri)
            self._tasks[uri] = asyncio.get_running_loop().create_task(self._check(uri))

    def stop(self, uri: str) -> None:
        """Ends the check of a document."""
        task = self._tasks.pop(uri, None)
        if task is not None:
            task.cancel()

    def cancel(self, token: str | int) -> None:
        """The user ends a check."""
        if token in self._tokens:
            self.stop(self._tokens[token])

    def captures_changed(self) -> None:
        """PTX files have changed."""
        self.start(*self._captured)

    def open(self, uri: str) -> None:
        """A document is opened; one that has no file is not checked."""
        path = to_fs_path(uri)
        if path is not None:
            self.view.open[uri] = os.path.realpath(path)
            self.start(uri)

    def close(self, uri: str) -> None:
        """A document is closed."""
        self.stop(uri)
        self._captured.discard(uri)
        self.view.forget(uri)

    def end(self) -> None:
        """Ends all that works for the client."""
        for uri in [*self._tasks]:
            self.stop(uri)
        self._children.kill()

    # ------------------------------------------------------------------ a check

    async def _check(self, uri: str) -> None:
        """Checks a document; whatever goes wrong is said, and the server goes on."""
        await asyncio.sleep(DEBOUNCE)
        path = self.view.open[uri]
        try:
            await self._check_file(uri, Path(path))
        except CommandError as error:
            self._not_checked(uri, path, str(error))
            self._log(f"{path}: {error}", lsp.MessageType.Warning)
        except Exception as error:
            self._log("".join(traceback.format_exception(error)), lsp.MessageType.Error)

    async def _check_file(self, uri: str, path: Path) -> None:
        text, files = self.view.text(str(path)), self.view.files(path)
        saved = await asyncio.to_thread(on_disk, path)
        if text is None or saved is None:
            limit = f"not checked: it is not a readable file of at most {MAX_SOURCE >> 20} MiB"
            self._not_checked(uri, files.owner, limit)
            return
        if saved.lines != text.lines and saved.is_whole:
            return  # it has changes, so its lines are not those of the file
        plan = await asyncio.to_thread(self._plan, path, text, files)
        (self._captured.add if plan.captures else self._captured.discard)(uri)
        if not plan.targets:
            self._not_checked(uri, files.owner, plan.why, plan.line)
            return
        token = await self._begin(uri, path)
        start = time.monotonic()
        try:
            said = await self._results(uri, files, text, plan.targets, token)
            self._log(f"{path}: {said} in {time.monotonic() - start:.1f} s", lsp.MessageType.Info)
        finally:
            self._end(token)

    def _plan(self, path: Path, text: Text, files: Files) -> Plan:
        """Which targets are checked for a file."""
        own = str(path)
        if path.suffix == _PTX and not path.with_suffix(".json").exists():
            name = path.with_suffix(".json").name
            return Plan(why=f"not checked: there is no {name}, which describes its launch")
        if path.suffix in (*_TEXTS, _PTX):
            return Plan((own,))
        if path.suffix == _PYTHON and imports_tilesim(text.source) and "kernel" in text.source:
            if self._trusted and files.is_inside(files.owner):
                return Plan((own,))
            why = _FOREIGN if self._trusted else _UNTRUSTED
            return Plan(why=why, line=kernel_line(text, "kernel"))
        if path.suffix != _PYTHON and path.suffix not in _CUDA:
            return Plan()
        found = captured(path)
        if found.old and not found.fresh:
            folder = os.path.relpath(found.old[0].parent, path.parent)
            why = f"not checked: its kernels in {folder} are of an earlier text: capture it again"
            return Plan(why=why, captures=True)
        return Plan(tuple(map(str, found.fresh)), captures=True)

    async def _results(
        self, uri: str, files: Files, text: Text, targets: tuple[str, ...], token: str
    ) -> str:
        """Checks the targets; what is found is published at once, repairs and waits when they are
        there. Returns the verdicts."""
        document = await self._command(files, targets)
        results = {result["kernel"]: result for result in document["results"]}
        left = document.get("interrupted")
        waits: Hovers = {}

        def publish() -> None:
            found = notes(results.values(), files, text)
            if left is not None:
                why = (f"the time of a check is over ({self._options.seconds:g} s), at "
                       f"{kernel_name(left['kernel'])}; {count(left['not_started'], 'target')} "
                       "not checked")  # fmt: skip
                found.append(Note(Place(files.owner, 1), INFORMATION, "", why))
            own = self.view.verdicts(results.values(), files, text)
            hovers = {p: (*own.get(p, ()), *waits.get(p, ())) for p in (*own, *waits)}
            self.view.publish(uri, found, hovers)

        publish()
        built = [name for name, result in results.items() if result["stats"] is not None]
        if built:
            with suppress(CommandError):  # a kernel that cannot be run once more has no waits
                run = await self._children.run(
                    built, self._options.seconds, module="tilesim.lsp.waits",
                    folder=Path(files.folder),
                )  # fmt: skip
                waits = self.view.waits(run["waits"], files)
                publish()
        failing = [n for n, r in results.items() if r["verdict"] in ("failed", "rejected")]
        if failing:
            self._goes_on(token, "looking for repairs")
            with suppress(CommandError):
                option = f"--suggest={self._options.repair_seconds:f}s"
                again = await self._command(files, failing[:_REPAIRED], option)
                results.update((result["kernel"], result) for result in again["results"])
                publish()
        verdicts = Counter(result["verdict"] for result in results.values())
        return ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())

    async def _command(self, files: Files, targets: Iterable[str], *options: str) -> dict[str, Any]:
        seconds = self._options.seconds
        return await self._children.run(
            ("check", "--format=json", "--skip-empty", f"--time-limit={seconds:f}s", *options, "--",
             *targets),
            seconds, folder=Path(files.folder),
        )  # fmt: skip

    # ------------------------------------------------------------------ what is said of it

    def _not_checked(self, uri: str, path: str, why: str, line: int = 1) -> None:
        """Says why a document is not checked; nothing without a reason."""
        note = Note(Place(path, line), INFORMATION, "", why)
        self.view.publish(uri, (note,) if why else ())

    async def _begin(self, uri: str, path: Path) -> str:
        """Shows that a check runs, if the client can."""
        window = self.client_capabilities.window
        if window is None or not window.work_done_progress:
            return ""
        token = str(uuid4())
        with suppress(Exception):  # a client that refuses, or does not answer
            await asyncio.wait_for(self.work_done_progress.create_async(token), ANSWER)
            self._tokens[token] = uri
            begin = lsp.WorkDoneProgressBegin(
                "tilesim", cancellable=True, message=f"checking {path.name}"
            )
            self.work_done_progress.begin(token, begin)
        return token

    def _goes_on(self, token: str, what: str) -> None:
        if token in self._tokens:
            self.work_done_progress.report(token, lsp.WorkDoneProgressReport(message=what))

    def _end(self, token: str) -> None:
        if self._tokens.pop(token, None) is not None:
            self.work_done_progress.end(token, lsp.WorkDoneProgressEnd())
            self.work_done_progress.tokens.pop(token, None)

    def _log(self, text: str, kind: lsp.MessageType) -> None:
        self.window_log_message(lsp.LogMessageParams(kind, text))


def serve(options: Options) -> None:
    """Serves a client over standard input and output until it ends."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else is written into the protocol
    children = Children(_AT_ONCE)
    server = Server(options, children)
    _register(server)

    def stop(number: int, frame: FrameType | None) -> None:
        children.kill()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, stop)
    try:
        server.start_io(stdout=output)
    finally:
        children.kill()


def _register(server: Server) -> None:
    """What the server does when the client says something."""

    @server.feature(lsp.INITIALIZE)
    def _initialize(params: lsp.InitializeParams) -> None:
        server.trust(params.initialization_options)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def _configure(params: lsp.DidChangeConfigurationParams) -> None:
        said = params.settings
        server.trust(said.get("tilesim") if isinstance(said, dict) else None)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def _open(params: lsp.DidOpenTextDocumentParams) -> None:
        server.open(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def _save(params: lsp.DidSaveTextDocumentParams) -> None:
        server.start(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def _change(params: lsp.DidChangeTextDocumentParams) -> None:
        server.start(params.text_document.uri)  # its file may be what has changed

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def _close(params: lsp.DidCloseTextDocumentParams) -> None:
        server.close(params.text_document.uri)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def _watched(params: lsp.DidChangeWatchedFilesParams) -> None:
        server.captures_changed()

    @server.feature(lsp.WINDOW_WORK_DONE_PROGRESS_CANCEL)
    def _cancel(params: lsp.WorkDoneProgressCancelParams) -> None:
        server.cancel(params.token)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def _hover(params: lsp.HoverParams) -> lsp.Hover | None:
        return server.view.hover(params.text_document.uri, params.position.line + 1)

    @server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions([lsp.CodeActionKind.QuickFix])
    )
    def _actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        lines = range(params.range.start.line + 1, params.range.end.line + 2)
        return server.view.actions(params.text_document.uri, lines)

    @server.feature(lsp.SHUTDOWN)
    def _shutdown(*_: object) -> None:
        server.end()
