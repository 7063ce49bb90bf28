"""The errors of the state layer for bad input, damaged files and unusable storage.

They share one base, so a caller can tell "the state layer refuses this" from its own failures. Each
message says what was wrong, where, why it matters and how to fix it. A broken internal invariant is an
``assert`` instead: it is a bug here, and a caller cannot react to it.
"""

from __future__ import annotations


class StateBackendError(Exception):
    """Base of all errors of the state layer."""


class KeyTypeError(StateBackendError, TypeError):
    """A key does not have the one type that its keyed stream declared."""


class KeyGroupError(StateBackendError, ValueError):
    """A parallelism, key group or key lies outside what the key-group arithmetic allows."""


class StateArgumentError(StateBackendError, ValueError):
    """An argument of a state operation is not allowed, such as adding ``None`` to a list state."""


class StateSerializationError(StateBackendError):
    """A value cannot be written so that reading gives the same value back.

    :ivar path: where inside the value the problem sits, such as ``value['a'][3]``
    """

    def __init__(self, message: str, path: str = "value") -> None:
        super().__init__(message)
        self.path = path


class StateSchemaError(StateBackendError):
    """State and program disagree: an unknown type code, another kind of state under the same name..."""


class StateMigrationError(StateSchemaError):
    """A value was written by an older version of its type and could not be brought to the present one."""


class CorruptStateError(StateBackendError):
    """Bytes read back are not the bytes that were written: torn, flipped, truncated or foreign.

    :ivar path: the file, or a description of the inlined bytes
    :ivar what: what exactly does not hold
    """

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}. Do not use it: restore from an older checkpoint or a copy.")
        self.path = path
        self.what = what


class MissingStateError(StateBackendError):
    """A file or checkpoint that something refers to does not exist.

    :ivar path: what was looked for
    """

    def __init__(self, path: str, what: str = "is referred to but does not exist") -> None:
        super().__init__(f"{path}: {what}. Was it deleted, or is this another storage directory?")
        self.path = path


class StorageNotWritableError(StateBackendError):
    """The storage directory cannot be created or written.

    :ivar path: the directory or file
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path}: cannot be written ({reason}). Choose a directory that this user may write to, "
            "with free space, or change its permissions."
        )
        self.path = path


class StorageInUseError(StateBackendError):
    """Another run holds the lock of a storage directory.

    :ivar path: the directory
    :ivar holder: the process id that the holder wrote down, or ``None`` when it left none
    """

    def __init__(self, path: str, holder: int | None, hint: str = "") -> None:
        """
        :param hint: what else may be done about it
        """
        by = "another holder that left no process id" if holder is None else f"process {holder}"
        super().__init__(
            f"{path}: is in use by {by}. Two runs over one storage directory would overwrite each "
            f"other's checkpoints: wait for that run to end, stop it, or choose another directory.{hint and ' ' + hint}"
        )
        self.path = path
        self.holder = holder


class SnapshotCancelledError(StateBackendError):
    """Work was asked of a snapshot that has been cancelled, or of a stream closed by a cancellation."""


class StateRestoreError(StateBackendError):
    """No copy of some state could be restored.

    :ivar reasons: per copy, in the order in which they were tried, where it is and what is wrong with it
    """

    def __init__(self, reasons: list[str]) -> None:
        listed = "".join(f"\n  {number}. {reason}" for number, reason in enumerate(reasons, start=1))
        super().__init__(f"could not restore: every copy of the state has failed.{listed}")
        self.reasons = tuple(reasons)


class RestoreCancelledError(StateBackendError):
    """A task was cancelled while its state was restored, so no other copy was tried."""
