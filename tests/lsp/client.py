"""An editor: a client of ``tilesim lsp``, which keeps what the server publishes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

import tilesim

ROOT = Path(tilesim.__file__).resolve().parent.parent
#: how long a check may take on a busy machine, in seconds
LONG = 120.0


class Editor:
    """Documents, and by URI the diagnostics that were published last."""

    def __init__(self) -> None:
        self.client: Any = LanguageClient("editor", "1")
        self.diagnostics: dict[str, list[lsp.Diagnostic]] = {}
        self.log: list[str] = []
        self.progress: list[Any] = []
        self._news = asyncio.Event()

        for name, listener in {
            lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS: self._published,
            lsp.WINDOW_LOG_MESSAGE: lambda params: self.log.append(params.message),
            lsp.WINDOW_WORK_DONE_PROGRESS_CREATE: lambda params: None,
            lsp.PROGRESS: self.progress.append,
        }.items():
            self.client.feature(name)(self._then_news(listener))

    def _then_news(self, listener: Callable[[Any], None]) -> Callable[[Any], None]:
        def listen(params: Any) -> None:
            listener(params)
            self._news.set()

        return listen

    def _published(self, params: lsp.PublishDiagnosticsParams) -> None:
        self.diagnostics[params.uri] = list(params.diagnostics)

    async def until(self, holds: Callable[[], object]) -> None:
        """Waits until something holds, as the server says more."""
        async with asyncio.timeout(LONG):
            while not holds():
                self._news.clear()
                if not holds():
                    await self._news.wait()

    async def checked(self, path: Path) -> list[lsp.Diagnostic]:
        """The diagnostics of a file, when its check is over; the next call waits for the next."""
        await self.until(lambda: any(line.startswith(f"{path}: ") for line in self.log))
        self.log[:] = [line for line in self.log if not line.startswith(f"{path}: ")]
        return self.diagnostics.get(path.as_uri(), [])

    async def noted(self, path: Path, said: str) -> lsp.Diagnostic:
        """The only diagnostic of a file, when it says something."""
        uri = path.as_uri()
        await self.until(lambda: any(said in d.message for d in self.diagnostics.get(uri, ())))
        (note,) = self.diagnostics[uri]
        return note

    def open(self, path: Path, text: str | None = None) -> None:
        """Opens a file, with the text that it has, if no other."""
        text = path.read_bytes().decode() if text is None else text
        item = lsp.TextDocumentItem(path.as_uri(), "text", 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    def change(self, path: Path, text: str, *, save: bool) -> None:
        """Gives a document another text, and ``save``s it."""
        document = lsp.VersionedTextDocumentIdentifier(2, path.as_uri())
        whole = lsp.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [whole]))
        if save:
            path.write_bytes(text.encode())
            saved = lsp.DidSaveTextDocumentParams(lsp.TextDocumentIdentifier(path.as_uri()))
            self.client.text_document_did_save(saved)

    async def hover(self, path: Path, line: int) -> str:
        """What is said of a line, counted from 1."""
        document, place = lsp.TextDocumentIdentifier(path.as_uri()), lsp.Position(line - 1, 4)
        found = await self.client.text_document_hover_async(lsp.HoverParams(document, place))
        if found is None:
            return ""
        assert isinstance(found.contents, lsp.MarkupContent)
        return found.contents.value

    async def actions(self, path: Path, line: int) -> list[lsp.CodeAction]:
        """The quick fixes at a line, counted from 1."""
        document, place = lsp.TextDocumentIdentifier(path.as_uri()), lsp.Position(line - 1, 0)
        context = lsp.CodeActionContext([])
        params = lsp.CodeActionParams(document, lsp.Range(place, place), context)
        found = await self.client.text_document_code_action_async(params)
        return [action for action in found or () if isinstance(action, lsp.CodeAction)]


def applied(text: str, edits: tuple[lsp.TextEdit, ...] | list[lsp.TextEdit]) -> str:
    """A text with edits of whole lines."""
    lines = text.splitlines(keepends=True)
    for edit in sorted(edits, key=lambda e: -e.range.start.line):
        assert (edit.range.start.character, edit.range.end.character) == (0, 0)
        lines[edit.range.start.line : edit.range.end.line] = [edit.new_text]
    return "".join(lines)


@asynccontextmanager
async def editor(folder: Path, *options: str, trusted: bool = False) -> AsyncIterator[Editor]:
    """An editor in whose workspace a folder is; at the end the server has to end by itself."""
    found = Editor()
    await found.client.start_io(
        sys.executable, "-P", "-m", "tilesim", "lsp", *options,
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "TILESIM_DOCS": "https://d/{page}"},
    )  # fmt: skip
    window = lsp.WindowClientCapabilities(work_done_progress=True)
    await found.client.initialize_async(
        lsp.InitializeParams(
            lsp.ClientCapabilities(window=window),
            workspace_folders=[lsp.WorkspaceFolder(folder.as_uri(), "work")],
            initialization_options={"trusted": trusted},
        )
    )
    found.client.initialized(lsp.InitializedParams())
    yield found
    await found.client.shutdown_async(None)
    found.client.exit(None)
    server = found.client._server
    assert server is not None
    assert await asyncio.wait_for(server.wait(), LONG) == 0
    await found.client.stop()
