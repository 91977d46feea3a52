"""What a client is shown of what was found: diagnostics, hovers and repairs.

It is shown at lines, so it holds for a text. A hover or a repair is given only while the text is
the one that was checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from tilesim.files import MAX_SOURCE
from tilesim.findings.rules import RULE_DOCS
from tilesim.lsp.findings import Files, Note, Place, kernel_line, kernel_name
from tilesim.lsp.text import Text, on_disk
from tilesim.records import dataclass, field
from tilesim.report.reading import LEANINGS, page
from tilesim.transforms.rewrite import Patch

#: notes that a file shows, and parts of a hover
_NOTES, _PARTS = 200, 4
_NUMBER = re.compile(r"[A-IU]\d{1,2}")
Hovers = dict[Place, tuple[str, ...]]


@dataclass(frozen=True)
class Checked:
    """What was found out about a document: notes, Markdown by line, and of which texts."""

    notes: tuple[Note, ...] = ()
    hovers: Hovers = field(default_factory=dict)
    texts: dict[str, Text] = field(default_factory=dict)


class View:
    """What the client of a server sees; documents are named by their URIs, files by real paths."""

    def __init__(self, server: LanguageServer) -> None:
        self._server = server
        #: documents that are open, and their files
        self.open: dict[str, str] = {}
        self._checked: dict[str, Checked] = {}
        self._shown: dict[str, list[lsp.Diagnostic]] = {}
        self._texts: dict[str, Text] = {}

    # ------------------------------------------------------------------ files and texts

    def files(self, path: Path) -> Files:
        """Where a file is checked: in the folder of the workspace that has it, or in one below with
        the project that it is of."""
        workspace, owner = self._server.workspace, os.path.realpath(path)
        folders = (to_fs_path(folder.uri) for folder in workspace.folders.values())
        roots = tuple(os.path.realpath(folder) for folder in folders if folder)
        roots = roots or (os.path.realpath(workspace.root_path or os.path.dirname(owner)),)
        above = [root for root in roots if owner.startswith(os.path.join(root, ""))]
        root = max(above, key=len, default=os.path.dirname(owner))
        for parent in Path(owner).parents:
            if parent == Path(root) or (parent / "pyproject.toml").is_file():
                return Files(owner, str(parent), roots)
        return Files(owner, root, roots)

    def text(self, path: str) -> Text | None:
        """The text of a file as it is in the editor, or else on the disk; None if it cannot be
        read, or is too large."""
        uri = self._uri(os.path.realpath(path))
        if uri not in self.open:
            return on_disk(Path(path))
        source = self._server.workspace.get_text_document(uri).source
        if uri not in self._texts or self._texts[uri].source is not source:
            self._texts[uri] = Text(source)
        return self._texts[uri] if len(source) <= MAX_SOURCE else None

    def _uri(self, path: str) -> str:
        """The URI of a file: the one that the client has opened it by, if it has."""
        opened = (uri for uri, file in self.open.items() if file == path)
        return next(opened, None) or Path(path).as_uri()

    def _units(self, text: str) -> int:
        return int(self._server.workspace.position_codec.client_num_units(text))

    # ------------------------------------------------------------------ diagnostics

    def publish(self, uri: str, notes: Iterable[Note], hovers: Hovers | None = None) -> None:
        """Shows what was found about a document, in all files that it is about."""
        before, found, hovers = self._checked.get(uri, Checked()), tuple(notes), hovers or {}
        paths = {place.path for place in (*(note.place for note in found), *hovers)}
        texts = {path: text for path in paths if (text := self.text(path)) is not None}
        self._checked[uri] = Checked(found, hovers, texts)
        for path in dict.fromkeys(note.place.path for note in (*before.notes, *found)):
            self._show(path)

    def forget(self, uri: str) -> None:
        """A document is closed: what was found about it goes."""
        self.publish(uri, ())
        for known in (self._checked, self._texts, self.open):
            known.pop(uri, None)

    def _show(self, path: str) -> None:
        every = (note for checked in self._checked.values() for note in checked.notes)
        own = dict.fromkeys(note for note in every if note.place.path == path)
        text = self.text(path) or Text("")
        shown = [self._diagnostic(note, text) for note in [*own][:_NOTES]]
        if shown != self._shown.pop(path, []):
            told = lsp.PublishDiagnosticsParams(self._uri(path), shown)
            self._server.text_document_publish_diagnostics(told)
        if shown:
            self._shown[path] = shown

    def _diagnostic(self, note: Note, text: Text) -> lsp.Diagnostic:
        href = _page(note.rule) if note.rule else ""
        return lsp.Diagnostic(
            text.span(note.place.line, self._units),
            note.message,
            lsp.DiagnosticSeverity(note.severity),
            note.rule or None,
            lsp.CodeDescription(href) if href else None,
            "tilesim",
            related_information=[
                lsp.DiagnosticRelatedInformation(self._location(place), said)
                for place, said in note.related
            ],
        )

    def _location(self, place: Place) -> lsp.Location:
        text = self.text(place.path) or Text("")
        return lsp.Location(self._uri(place.path), text.span(place.line, self._units))

    # ------------------------------------------------------------------ hovers and repairs

    def hover(self, uri: str, line: int) -> lsp.Hover | None:
        """What is known of a line, counted from 1: what waits waited for, what rules mean."""
        place = Place(os.path.realpath(to_fs_path(uri) or ""), line)
        said: dict[str, None] = {}
        for checked in self._fresh(place.path):
            said |= dict.fromkeys(checked.hovers.get(place, ()))
            rules = (n.rule for n in checked.notes if n.place == place and n.rule in RULE_DOCS)
            for doc in (RULE_DOCS[rule] for rule in rules):
                said[f"**{doc.name}**: {doc.summary}\n\nFix: {doc.fix}"] = None
        if not said:
            return None
        parts = "\n\n---\n\n".join([*said][:_PARTS])
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, parts))

    def actions(self, uri: str, lines: range) -> list[lsp.CodeAction]:
        """The repairs of what is shown at lines, counted from 1."""
        path = os.path.realpath(to_fs_path(uri) or "")
        text = self.text(path) or Text("")
        found: dict[str, lsp.CodeAction] = {}
        for checked in self._fresh(path):
            near = (n for n in checked.notes if n.place.path == path and n.place.line in lines)
            for note, fix in ((n, fix) for n in near for fix in n.fixes):
                edit = self._edit(fix.patches)
                if edit is not None and fix.title not in found:
                    about = [self._diagnostic(note, text)]
                    kind = lsp.CodeActionKind.QuickFix
                    found[fix.title] = lsp.CodeAction(
                        fix.title, kind, about, is_preferred=not found, edit=edit
                    )
        return list(found.values())

    def _edit(self, patches: Iterable[Patch]) -> lsp.WorkspaceEdit | None:
        """The patches as an edit; None if a text is not the one that they are of."""
        files: dict[str, list[Patch]] = {}
        for patch in patches:
            files.setdefault(patch.file, []).append(patch)
        changes: dict[str, list[lsp.TextEdit]] = {}
        for path, own in files.items():
            text = self.text(path)
            edits = None if text is None else text.edits(own, self._units)
            if edits is None:
                return None
            changes[self._uri(path)] = edits
        return lsp.WorkspaceEdit(changes)

    def _fresh(self, path: str) -> Iterator[Checked]:
        """What was found about a file, if its text is the one that was checked."""
        text = self.text(path)
        for checked in self._checked.values():
            was = checked.texts.get(path)
            if text is not None and was is not None and was.lines == text.lines:
                yield checked

    # ------------------------------------------------------------------ Markdown

    def waits(self, document: dict[str, Any], files: Files) -> Hovers:
        """What waits waited for (`tilesim.lsp.waits`); several kernels may share a line."""
        found: dict[Place, dict[str, None]] = {}
        for kernel, entries in document.items():
            for entry in entries:
                place = files.place(entry)
                if place is not None:
                    lines = [self._line(line, files) for line in entry["lines"]]
                    said = f"`{kernel_name(kernel)}`, in its timed schedule\n\n" + "\n".join(lines)
                    found.setdefault(place, {})[said] = None
        return {place: tuple(said) for place, said in found.items()}

    def _line(self, line: dict[str, Any], files: Files) -> str:
        if "file" not in line:
            return f"* {line['text']}"
        place, name = files.place(line), os.path.basename(line["file"])
        if place is None:
            return f"  * {line['text']}: {name}:{line['line']}"
        text = self.text(place.path) or Text("")
        code = text.line(place.line).strip().replace("`", "'")
        name = os.path.basename(place.path)
        link = f"[{name}:{place.line}]({Path(place.path).as_uri()}#L{place.line})"
        return f"  * {line['text']}: {link}" + (f" `{code}`" if code else "")

    def verdicts(self, results: Iterable[dict[str, Any]], files: Files, text: Text) -> Hovers:
        """The verdicts, at the lines of the kernels."""
        found: Hovers = {}
        for result in (one for one in results if not one["error"]):
            place = Place(files.owner, kernel_line(text, result["kernel"]))
            covers = f": {result['covers']}" if result["covers"] else ""
            said = f"**{result['verdict']}** `{kernel_name(result['kernel'])}`{covers}"
            found[place] = (*found.get(place, ()), said)
        return found


def _page(rule: str) -> str:
    """Where the page on a rule is; nothing if that is not known (``$TILESIM_DOCS``)."""
    if rule in RULE_DOCS:
        return page(f"findings/{rule}")
    return page("semantics", f"#{rule.lower()}") if _NUMBER.fullmatch(rule) else page(*LEANINGS)
