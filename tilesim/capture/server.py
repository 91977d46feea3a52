"""The other end of the stub's socket: questions in, answers out.

A question is three numbers of 4 bytes (which, count of numbers, length of the text), numbers of 8
bytes, and the text. The answer is an error number, a length, and as many bytes. Before it, any
number of times, -1 with an address and a size asks for that memory of the program, which follows.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingMixIn, UnixStreamServer
from struct import pack, unpack
from threading import Lock, Thread

from tilesim.capture.errors import CudaError
from tilesim.capture.folder import Folder
from tilesim.capture.session import Question, Session


class _Ended(Exception):
    """The program has closed its end."""


class _Handler(StreamRequestHandler):
    """One process of the program."""

    server: Server

    def handle(self) -> None:
        """Answers until the process ends."""
        session = Session(self.server.target, self.server.folder, self._memory)
        with suppress(_Ended, ConnectionError):
            while True:
                self._answer(session)

    def _answer(self, session: Session) -> None:
        which, count, length = unpack("<3I", self._get(12))
        numbers = unpack(f"<{count}Q", self._get(8 * count))
        text = self._get(length).decode(errors="replace")
        answer, error = b"", 0
        try:
            with self.server.lock:
                answer = session.answer(Question(which), numbers, text)
        except CudaError as refused:
            error = refused.number
        self.connection.sendall(pack("<iI", error, len(answer)) + answer)

    def _memory(self, address: int, size: int) -> bytes:
        self.connection.sendall(pack("<iIQQ", -1, 0, address, size))
        return self._get(size)

    def _get(self, size: int) -> bytes:
        found = self.rfile.read(size)
        if len(found) < size:
            raise _Ended
        return found


class Server(ThreadingMixIn, UnixStreamServer):
    """Answers every process that runs against the stub, from entering to leaving it."""

    daemon_threads = True

    def __init__(self, path: Path, target: str, folder: Folder) -> None:
        super().__init__(str(path), _Handler)
        self.target = target
        self.folder = folder
        #: processes write to one folder
        self.lock = Lock()
        self._thread = Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
