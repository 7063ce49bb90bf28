"""A file system that wraps another one and fails exactly where a plan says.

A plan is a list of rules. A rule names the operation, the path pattern and the matching call
(counted from 1) that it strikes. To decide call by call, give a function instead. The calls are also
recorded, so that a test can first run undisturbed and then strike each call in turn. All accesses to
files go through the inner file system.
"""

from __future__ import annotations

import enum
import errno
import fnmatch
import io
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TypeVar

from state_backends.files.port import FileSystem, RandomAccessFile, WritableFile
from state_backends.files.wrapped import WrappedFileSystem

T = TypeVar("T")


class FileFault(enum.Enum):
    """The way a call fails."""

    ERROR_BEFORE = "an I/O error; nothing was done"
    ERROR_AFTER = "an I/O error although the call was carried out"
    TORN_WRITE = "only a prefix of the bytes is written, then an I/O error"
    DISK_FULL = "no space left; a write may leave a prefix"
    READ_ONLY = "the file system is read-only"
    BIT_FLIP = "the bytes read back have one bit flipped"
    TRUNCATED = "the file is read without its end"
    STALE_LISTING = "a listing without the names that were made last"
    MISSING = "the file is not there"
    CRASH_BEFORE = "the process dies; nothing was done"
    CRASH_AFTER = "the process dies right after the call was carried out"


class SimulatedCrashError(BaseException):
    """The process died here. It is not an :class:`Exception`, so no error handler catches it."""


class Call(NamedTuple):
    """One call that reached the file system."""

    operation: str
    path: str


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One planned failure.

    :ivar kind: the way the call fails
    :ivar operation: a name such as ``rename`` or ``write`` (see ``OPERATIONS``), or ``*`` for any
    :ivar path: a shell pattern that the path (for a rename or link: source or target) must match
    :ivar at_call: which of the matching calls fails, from 1; ``None`` = every one
    :ivar keep_bytes: for TORN_WRITE and DISK_FULL, the number of bytes of the write that are still written; for
        TRUNCATED, the number of bytes of the file that are left
    :ivar flip_bit: for BIT_FLIP, the bit of the file, from 0, modulo the file's size
    :ivar hide_names: for STALE_LISTING, the number of newest names that are missing
    """

    kind: FileFault
    operation: str = "*"
    path: str = "*"
    at_call: int | None = None
    keep_bytes: int = 0
    flip_bit: int = 0
    hide_names: int = 1


Decide = Callable[[str, tuple[str, ...]], FaultRule | None]
"""Called with the operation and paths of a call; returns the rule that strikes it, if one does."""

_WRITING = frozenset(
    ["open_write", "open_append", "write", "fsync", "rename", "fsync_dir", "link", "make_dirs", "lock"]
)
_CHANGING = _WRITING | {"truncate", "delete", "delete_tree"}
_READING = frozenset(["open_read", "open_random"])
OPERATIONS = _CHANGING | _READING | {"read_at", "close", "list_dir", "size", "exists", "is_dir"}
"""Every name that a rule's ``operation`` may have."""

_MAKES = ("open_write", "open_append", "rename", "link", "make_dirs")

_APPLIES_TO: dict[FileFault, frozenset[str]] = {
    FileFault.TORN_WRITE: frozenset(["write"]),
    FileFault.DISK_FULL: _WRITING,
    FileFault.READ_ONLY: _CHANGING,
    FileFault.BIT_FLIP: _READING,
    FileFault.TRUNCATED: _READING,
    FileFault.STALE_LISTING: frozenset(["list_dir"]),
    FileFault.MISSING: _READING | {"size", "list_dir", "delete", "rename", "link"},
}


class FaultInjectingFileSystem(WrappedFileSystem):
    """Passes every call on, except those that a rule strikes.

    :ivar calls: every call so far, struck ones included
    :ivar struck: the rules that have struck, in order, with the call
    """

    def __init__(self, inner: FileSystem, rules: Iterable[FaultRule] = (), *, decide: Decide | None = None) -> None:
        """``decide``: called for each call that no rule strikes."""
        super().__init__(inner)
        self.calls: list[Call] = []
        self.struck: list[tuple[FaultRule, Call]] = []
        self._rules = tuple(rules)
        self._matches = [0] * len(self._rules)
        self._decide = decide
        self._made: dict[str, None] = {}
        """Names in the order in which they were made, for listings without the newest."""
        self._dead = False
        for rule in self._rules:
            assert rule.operation == "*" or rule.operation in OPERATIONS, f"no operation {rule.operation!r}"

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        return _FaultyWritableFile(self, super().open_write(path, exclusive=exclusive), path)

    def open_append(self, path: str) -> WritableFile:
        return _FaultyWritableFile(self, super().open_append(path), path)

    def open_read(self, path: str) -> BinaryIO:
        rule = self._strike("open_read", path)
        file = self._apply(rule, lambda: self.inner.open_read(path), path)
        return file if rule is None else _damaged(file, rule)

    def open_random(self, path: str) -> RandomAccessFile:
        rule = self._strike("open_random", path)
        file = self._apply(rule, lambda: self.inner.open_random(path), path)
        return _FaultyRandomAccessFile(self, file, path, rule)

    def list_dir(self, path: str) -> list[str]:
        rule = self._strike("list_dir", path)
        names = self._apply(rule, lambda: self.inner.list_dir(path), path)
        if rule is None or rule.kind is not FileFault.STALE_LISTING:
            return names
        prefix = path.rstrip("/") + "/"
        newest = [name for name in reversed(self._made) if name.startswith(prefix) and "/" not in name[len(prefix) :]]
        hidden = {name[len(prefix) :] for name in newest[: rule.hide_names]}
        return [name for name in names if name not in hidden]

    def _call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        paths = [one for one in arguments if type(one) is str]
        call = partial(super()._call, operation, *arguments, **options)
        answer = self._struck("lock" if operation == "lock_directory" else operation, call, *paths)
        if operation in _MAKES:
            if operation == "rename":
                self._made.pop(paths[0], None)
            self._made.pop(paths[-1], None)
            self._made[paths[-1]] = None
        return answer

    def _struck(self, operation: str, apply: Callable[[], T], *paths: str) -> T:
        return self._apply(self._strike(operation, *paths), apply, paths[0])

    def _strike(self, operation: str, *paths: str) -> FaultRule | None:
        """Record the call; returns the first rule of the plan that strikes it, if any."""
        if self._dead:
            # After a crash the process cannot do anything, not even clean up.
            raise SimulatedCrashError("the process is dead")
        self.calls.append(Call(operation, paths[-1]))
        striking = None
        for index, rule in enumerate(self._rules):
            if not _matches(rule, operation, paths):
                continue
            self._matches[index] += 1
            if striking is None and rule.at_call in (None, self._matches[index]):
                striking = rule
        if striking is None and self._decide is not None:
            striking = self._decide(operation, paths)
        if striking is not None:
            self.struck.append((striking, self.calls[-1]))
        return striking

    def _apply(self, rule: FaultRule | None, apply: Callable[[], T], path: str) -> T:
        kind = None if rule is None else rule.kind
        if kind is None or kind in _CARRIED_OUT:
            return apply()
        if kind is FileFault.CRASH_BEFORE:
            self._die()
        if kind in (FileFault.CRASH_AFTER, FileFault.ERROR_AFTER):
            apply()
        if kind is FileFault.CRASH_AFTER:
            self._die()
        raise _os_error(kind, path)

    def _write(self, file: WritableFile, data: bytes, path: str) -> int:
        rule = self._strike("write", path)
        if rule is not None and rule.kind in (FileFault.TORN_WRITE, FileFault.DISK_FULL):
            file.write(data[: rule.keep_bytes])
        return self._apply(rule, lambda: file.write(data), path)

    def _die(self) -> None:
        self._dead = True
        raise SimulatedCrashError(str(self.calls[-1]))


class _FaultyWritableFile(WritableFile):
    def __init__(self, fs: FaultInjectingFileSystem, file: WritableFile, path: str) -> None:
        self._fs = fs
        self._file = file
        self._path = path

    def write(self, data: bytes) -> int:
        return self._fs._write(self._file, data, self._path)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def fsync(self) -> None:
        self._fs._struck("fsync", self._file.fsync, self._path)

    def close(self) -> None:
        self._fs._struck("close", self._file.close, self._path)


class _FaultyRandomAccessFile(RandomAccessFile):
    def __init__(self, fs: FaultInjectingFileSystem, file: RandomAccessFile, path: str, rule: FaultRule | None) -> None:
        self._fs = fs
        self._file = file
        self._path = path
        kind = None if rule is None else rule.kind
        self._flip_bit = rule.flip_bit if rule is not None and kind is FileFault.BIT_FLIP else None
        self._end = file.size
        if rule is not None and kind is FileFault.TRUNCATED:
            self._end = min(rule.keep_bytes, file.size)

    @property
    def size(self) -> int:
        return self._end

    def read_at(self, offset: int, size: int) -> bytes:
        data = self._fs._struck("read_at", lambda: self._file.read_at(offset, size), self._path)
        data = data[: max(0, self._end - offset)]
        if self._flip_bit is None or not self._file.size:
            return data
        position, bit = divmod(self._flip_bit % (self._file.size * 8), 8)
        if not offset <= position < offset + len(data):
            return data
        flipped = bytearray(data)
        flipped[position - offset] ^= 1 << bit
        return bytes(flipped)

    def close(self) -> None:
        self._fs._struck("close", self._file.close, self._path)


_CARRIED_OUT = (FileFault.BIT_FLIP, FileFault.TRUNCATED, FileFault.STALE_LISTING)
"""The call itself succeeds, but its answer is wrong."""


def _matches(rule: FaultRule, operation: str, paths: tuple[str, ...]) -> bool:
    if rule.operation not in ("*", operation):
        return False
    if operation not in _APPLIES_TO.get(rule.kind, OPERATIONS):
        return False
    return any(fnmatch.fnmatchcase(path, rule.path) for path in paths)


def _os_error(kind: FileFault, path: str) -> OSError:
    code = {FileFault.DISK_FULL: errno.ENOSPC, FileFault.READ_ONLY: errno.EROFS, FileFault.MISSING: errno.ENOENT}.get(
        kind, errno.EIO
    )
    return OSError(code, os.strerror(code), path)


def _damaged(file: BinaryIO, rule: FaultRule) -> BinaryIO:
    if rule.kind not in (FileFault.BIT_FLIP, FileFault.TRUNCATED):
        return file
    with file:
        data = bytearray(file.read())
    if rule.kind is FileFault.TRUNCATED:
        del data[rule.keep_bytes :]
    elif data:
        position = rule.flip_bit % (len(data) * 8)
        data[position // 8] ^= 1 << (position % 8)
    return io.BytesIO(bytes(data))
