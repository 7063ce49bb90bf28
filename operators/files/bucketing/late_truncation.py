"""Files that are cut with a delay: how a bucketing sink works on a file system that answers later.

On Hadoop's file system a file still belongs to the dead task that was writing it (a *lease*), and ``truncate`` may
return before the file is cut. The rules are those of Flink's ``BucketingSink.handlePendingInProgressFiles``:

* First the lease is recovered. The sink asks again until the file is closed, for ``timeout_ms`` at most. Then it cuts
  the file whether it is closed or not; the file system may refuse.
* If the cut is not done at once, the sink checks the length until it is the wanted one, for ``timeout_ms`` at most.
* A file that is not cut by then is an error: its content is unknown.

Flink's task sleeps between two checks. Here no task sleeps: the owner of the clock calls
:meth:`LateTruncations.is_done` again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from engine.elements.errors import StorageError

POLL_INTERVAL_MS = 500
"""How long to wait between two checks, as in Flink."""


@runtime_checkable
class TruncatesLater(Protocol):
    """The methods beyond the port of a file system that cuts files later."""

    def recover_lease(self, path: str) -> bool:
        """Take a file from its present writer; returns whether it is closed now. May be called again."""

    def truncate_later(self, path: str, size_bytes: int) -> bool:
        """Begin to cut a file, durably; returns whether it is done. Otherwise ``size`` shows when it is."""

    def size(self, path: str) -> int:
        """As in the port."""


@dataclass(slots=True)
class _Truncation:
    size_bytes: int
    since_ms: int
    """When the lease was requested, or the cut begun."""
    is_begun: bool = False


class LateTruncations:
    """The files that are being cut. ``timeout_ms``: how long each of the two steps may take."""

    def __init__(self, fs: TruncatesLater, timeout_ms: int) -> None:
        self._fs = fs
        self._timeout_ms = timeout_ms
        self._under_way: dict[str, _Truncation] = {}

    def begin(self, path: str, size_bytes: int, now_ms: int) -> bool:
        """Cut a file to ``size_bytes``; returns whether that is done already."""
        self._under_way[path] = _Truncation(size_bytes, now_ms)
        return self.is_done(path, now_ms)

    def is_done(self, path: str, now_ms: int) -> bool:
        """Whether a file is cut by now; if so, it is forgotten.

        Raises ``StorageError`` when it takes too long.
        """
        one = self._under_way[path]
        if not one.is_begun:
            if not self._fs.recover_lease(path) and now_ms - one.since_ms <= self._timeout_ms:
                return False
            one.is_begun, one.since_ms = True, now_ms
            done = self._fs.truncate_later(path, one.size_bytes)
        else:
            done = self._fs.size(path) == one.size_bytes
        if done:
            del self._under_way[path]
        elif now_ms - one.since_ms > self._timeout_ms:
            raise StorageError(
                f"{path} was to be cut to {one.size_bytes} bytes, but still has {self._fs.size(path)} after"
                f" {now_ms - one.since_ms} ms\n"
                "  the file system has not carried it out: see whether it is well, or give the sink a longer"
                " async_timeout_ms"
            )
        return done

    def fingerprint(self) -> object:
        return tuple((path, one.size_bytes, one.since_ms, one.is_begun) for path, one in self._under_way.items())
