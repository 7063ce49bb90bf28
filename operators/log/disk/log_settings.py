"""The settings of a log on disk: when files begin, when they are deleted, and what a power cut can lose (see
:mod:`operators.log.disk.disk_transaction_log`)."""

from __future__ import annotations

from typing import NamedTuple

from engine.elements.errors import ConfigurationError, check_whole
from operators.log.disk.partition_log import Retention
from operators.log.port import DEFAULT_ID_EXPIRATION_NS, DEFAULT_MAX_TIMEOUT_NS

FSYNC_APPEND, FSYNC_TRANSACTION, FSYNC_NEVER = "append", "transaction", "never"
FSYNC_POLICIES = (FSYNC_APPEND, FSYNC_TRANSACTION, FSYNC_NEVER)


class LogSettings(NamedTuple):
    """``fsync``: see the module; ``segment_bytes``: when a new file begins; ``retention``: what may be deleted;
    ``journal_bytes``: how much the journal grows before the next snapshot bounds recovery."""

    fsync: str = FSYNC_TRANSACTION
    segment_bytes: int = 64 << 20
    retention: Retention = Retention()
    journal_bytes: int = 1 << 20
    max_timeout_ns: int = DEFAULT_MAX_TIMEOUT_NS
    keeps_history: bool = False
    id_expiration_ns: int | None = DEFAULT_ID_EXPIRATION_NS

    def check(self) -> None:
        """Raises :class:`ConfigurationError` when a value is not valid."""
        if self.fsync not in FSYNC_POLICIES:
            raise ConfigurationError(f"fsync is {self.fsync!r}; it must be one of {', '.join(FSYNC_POLICIES)}")
        may_be_none = (*Retention._fields, "id_expiration_ns")
        for name, value in (*self._asdict().items(), *self.retention._asdict().items()):
            if name in ("fsync", "retention", "keeps_history") or (value is None and name in may_be_none):
                continue
            # The name of the option of DiskLog.
            prefix = "retain_" if name in Retention._fields else "transactional_" if name in may_be_none else ""
            check_whole(f"{prefix}{name} of the log", value)
