"""Names a log on disk in a job: its path and its settings. The first operator that needs the log opens it.

All operators of a process share the open log, under one lock, until the last one releases it. When a process dies in a
simulation, its open log is gone; its successor opens the log again and recovers it.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.elements.errors import ConfigurationError
from engine.elements.operator import OperatorContext
from operators.log.disk.disk_transaction_log import DiskTransactionLog
from operators.log.disk.log_settings import FSYNC_TRANSACTION, LogSettings
from operators.log.disk.partition_log import Retention
from operators.log.port import DEFAULT_ID_EXPIRATION_NS, DEFAULT_MAX_TIMEOUT_NS, Exchange, Request
from state_backends.files import FileSystem


class DiskLog:
    """A log below ``path``: relative to the output directory for sinks, to the working directory for sources.

    ``fsync``            ``"append"``, ``"transaction"`` or ``"never"``: what a power cut can take, see
                         :mod:`operators.log.disk.disk_transaction_log`;
    ``segment_bytes``    how large a file becomes before the next begins;
    ``retain_bytes``, ``retain_records``, ``retain_segments``  the least that is kept of each partition, ``None`` =
                         everything. Retention deletes whole segments, only before the last stable offset;
    ``journal_bytes``    how much the transaction journal grows before a snapshot shortens the next recovery;
    ``max_timeout_ns``   the longest transaction timeout that a sink may ask for;
    ``transactional_id_expiration_ns``  how long the log remembers an unused transactional id, ``None`` = for ever. An
                         older checkpoint cannot be restored, because the outcome of its transactions is unknown.

    ``gate`` and ``clock`` are those of the log, see
    :class:`operators.log.port.transaction_coordinator.TransactionCoordinator`: set them before the log is opened.
    """

    def __init__(
        self,
        path: str,
        *,
        fsync: str = FSYNC_TRANSACTION,
        segment_bytes: int = 64 << 20,
        retain_bytes: int | None = None,
        retain_records: int | None = None,
        retain_segments: int | None = None,
        journal_bytes: int = 1 << 20,
        max_timeout_ns: int = DEFAULT_MAX_TIMEOUT_NS,
        transactional_id_expiration_ns: int | None = DEFAULT_ID_EXPIRATION_NS,
    ) -> None:
        check_log_path(path)
        retention = Retention(retain_bytes, retain_records, retain_segments)
        self.path = path
        self.settings = LogSettings(
            fsync,
            segment_bytes,
            retention,
            journal_bytes,
            max_timeout_ns,
            id_expiration_ns=transactional_id_expiration_ns,
        )
        self.settings.check()
        self.gate: Callable[[Request], str] | None = None
        self.clock: Callable[[], int] | None = None
        self.history: list[Exchange] = []
        """Every request so far, from every process, if ``keeps_history``: for observers of a simulation."""
        self.keeps_history = False
        self._open: DiskTransactionLog | None = None
        self._held_by: tuple[FileSystem, str, int] | None = None
        self._users = 0

    def fresh(self) -> DiskLog:
        """The same log, not open in any process."""
        other = DiskLog(self.path)
        other.settings = self.settings
        return other

    def acquire(self, context: OperatorContext) -> DiskTransactionLog:
        """The log, opened if it is not open in this process. Each call needs one :meth:`release` or :meth:`abandon`."""
        files, path = context.file_system(), context.resolve_path(self.path)
        holder = (files, path, context.incarnation)
        found = self._open
        if found is not None and self._held_by == holder and found.is_usable:
            self._users += 1
            return self._watched(found)
        if found is not None:
            # Its process has died, or the log has failed.
            found.abandon()
        self._open = None
        self._open = found = DiskTransactionLog(files, path, self.settings)
        self._held_by, self._users = holder, 1
        context.metrics.count("numLogBytesTruncated", found.truncated_bytes)
        context.metrics.count("numLogMarkersCompleted", found.completed_markers)
        return self._watched(found)

    def _watched(self, log: DiskTransactionLog) -> DiskTransactionLog:
        log.gate, log.clock = self.gate, self.clock
        if self.keeps_history:
            log.keep_history(self.history)
        return log

    def release(self, log: DiskTransactionLog) -> None:
        """Removes one user; the last one closes the log."""
        if self._is_last(log):
            log.close()

    def abandon(self, log: DiskTransactionLog) -> None:
        """Removes one user whose process has died; with the last one, records that are only in memory are lost."""
        if self._is_last(log):
            log.abandon()

    def _is_last(self, log: DiskTransactionLog) -> bool:
        if log is not self._open:
            # Another user has opened the log again.
            return False
        self._users -= 1
        if self._users:
            return False
        self._open = self._held_by = None
        return True


def check_log_path(path: object) -> None:
    """Raises :class:`ConfigurationError` unless ``path`` names a directory."""
    if not isinstance(path, str) or not path:
        raise ConfigurationError(f"the path of a log must be the name of a directory, got {path!r}")
