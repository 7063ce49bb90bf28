"""Writes the trace: JSON Lines with a versioned header, and a digest that names a run's behaviour.

The digest covers every event in order, so one digest means one behaviour: same sends, same receives, same queues, at
the same virtual times.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from engine.observe.trace_events import TRACE_VERSION, TraceEvent

if TYPE_CHECKING:
    from state_backends.files import FileSystem

_BUFFERED_LINES = 1_000
_DIGESTED_EVENTS = 256


class TraceDigest:
    """An instrument that only computes the digest."""

    def __init__(self) -> None:
        self._hash = sha256()
        self._waiting: list[TraceEvent] = []
        """Events that are not in the hash yet. They are plain data: many are taken in at once."""
        self._events = 0

    def __call__(self, event: TraceEvent) -> None:
        """Take in one event."""
        self._waiting.append(event)
        if len(self._waiting) >= _DIGESTED_EVENTS:
            self._take_in()

    @property
    def events(self) -> int:
        """How many there were."""
        return self._events + len(self._waiting)

    def _take_in(self) -> None:
        self._hash.update("".join(map(repr, self._waiting)).encode())
        self._events += len(self._waiting)
        self._waiting.clear()

    def hexdigest(self) -> str:
        """Digest of all events so far."""
        self._take_in()
        return self._hash.hexdigest()


class TraceWriter:
    """An instrument that writes one JSON object per event: ``{"event": kind, field: value, ...}``.

    The first line is ``{"trace_version": …}``. Lines are buffered; :meth:`close` writes the rest.
    """

    def __init__(self, file_system: FileSystem, path: str) -> None:
        self._file = file_system.open_write(path)
        self._lines = [json.dumps({"trace_version": TRACE_VERSION})]

    def __call__(self, event: TraceEvent) -> None:
        """Append one event."""
        self._lines.append(json.dumps({"event": type(event).__name__, **event._asdict()}))
        if len(self._lines) >= _BUFFERED_LINES:
            self._flush()

    def _flush(self) -> None:
        if self._lines:
            self._file.write(("\n".join(self._lines) + "\n").encode())
            self._lines.clear()

    def close(self) -> None:
        """Write the buffered lines and close the file."""
        self._flush()
        self._file.close()
