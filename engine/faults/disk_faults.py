"""Faults of the disks under checkpoint storage and under file sinks.

Rules.

* An opportunity is a call of the file system. An exact fault names the path by a pattern, or ``OPERATION PATH``
  (``write-error:rename */_metadata#1``), and the n-th matching call; ``disk-full`` and ``read-only`` may have a
  duration instead of, or besides, that.
* A disk may refuse a call: it reports that. The machine may lose the last writes: the disk had not confirmed these as
  durable. A disk may return wrong data: a checksum finds that. The job must survive all three. At worst it ends with an
  error that names the cause, and can be resumed once the disk is repaired (:data:`MAY_END_THE_JOB`).
* When a process dies nothing is lost, unless the machine dies with it: then ``lose-unsynced`` strikes, and a draw
  decides for each change that was not made durable whether it survives.
* ``delete-referenced`` is a cleanup by hand: a file that a completed checkpoint needs is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from engine.faults.fault import FAULT_KINDS, Fault, FaultMix
from engine.faults.opportunities import Opportunities, Struck, Windows, drawn_duration_ns, plain_target
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.snapshots import CHECKPOINT_PREFIX, METADATA_FILE_NAME

CHECKPOINTS, FILES = "checkpoints", "files"
"""The disks of a run: of checkpoint storage, and of sources and sinks."""

_WRITES = frozenset(["open_write", "open_append", "write", "fsync", "rename", "fsync_dir", "link", "make_dirs"])
_CHANGES = _WRITES | {"truncate", "delete", "delete_tree"}
_OPENS = frozenset(["open_read", "open_random"])
_READS = _OPENS | {"read_at", "list_dir", "size"}

_OPERATIONS: Mapping[str, frozenset[str]] = {
    "torn-write": frozenset(["write"]),
    "write-error": _CHANGES,
    "read-error": _READS,
    "bit-flip": _OPENS,
    "truncate": _OPENS,
    "missing": _OPENS | {"size"},
    "stale-listing": frozenset(["list_dir"]),
    "disk-full": _WRITES,
    "read-only": _CHANGES,
}
_POSSIBLE: Mapping[str, tuple[str, ...]] = {
    operation: tuple(kind for kind, operations in _OPERATIONS.items() if operation in operations)
    for operation in sorted(_CHANGES | _READS)
}
_LASTING = ("disk-full", "read-only")

MAY_END_THE_JOB = frozenset(kind for kind in FAULT_KINDS if FAULT_KINDS[kind].group == "storage") - {"lose-unsynced"}
"""Kinds after which a job may end with a clear error instead of finishing; on a repaired disk it must then
finish."""


class StorageFaults:
    """The faults of the disks in one case."""

    def __init__(self, faults: Sequence[Fault], mix: FaultMix, struck: Struck) -> None:
        self._struck = struck
        self._calls = Opportunities(tuple(_OPERATIONS), faults, mix, struck, fits=_is_meant, details=self._details)
        self._tidying = Opportunities(("delete-referenced",), faults, mix, struck, details=self._details)
        self._windows = Windows((*_LASTING, "delete-referenced"), faults, struck)
        self._deaths = Opportunities(("lose-unsynced",), (), mix, struck)
        self._lost = [fault for fault in faults if fault.kind == "lose-unsynced"]
        self._lost_used = [False] * len(self._lost)
        self._died = 0
        self._deleted: list[Fault] = []
        self._wrapped: dict[str, FaultInjectingFileSystem] = {}

    @property
    def is_armed(self) -> bool:
        """Whether any call of a file system may fail."""
        return self._calls.is_armed or self._tidying.is_armed or self._windows.is_armed

    # -- calls --------------------------------------------------------------------------------------------------

    def wrap(self, file_system: FileSystem, name: str) -> FileSystem:
        """A file system whose calls fail as planned; the argument itself when none can. The wrapper of a name is the
        same in all processes of a case."""
        if not self.is_armed:
            return file_system
        wrapped = self._wrapped.get(name)
        if wrapped is None or wrapped.inner is not file_system:
            decide = self._befalls_checkpoints if name == CHECKPOINTS else self._befalls
            wrapped = self._wrapped[name] = FaultInjectingFileSystem(file_system, decide=decide)
        return wrapped

    def _befalls_checkpoints(self, operation: str, paths: tuple[str, ...]) -> FaultRule | None:
        if self._windows.is_armed:
            self._tidy_up()
        rule = self._befalls(operation, paths)
        if self._tidying.is_armed and operation == "rename" and paths[-1].endswith(METADATA_FILE_NAME):
            fault = self._tidying.strike(paths[-1])
            if fault is not None:
                self._windows.begin(fault, "*", self._struck.now_ns)
        return rule

    def _befalls(self, operation: str, paths: tuple[str, ...]) -> FaultRule | None:
        possible = _POSSIBLE.get(operation)
        if possible is None:
            return None
        name = f"{operation} {paths[-1]}"
        if self._windows.is_armed:
            for kind in _LASTING:
                if kind in possible:
                    fault = self._windows.in_force(kind, (name, paths[-1]), self._struck.now_ns)
                    if fault is not None:
                        return _rule(fault)
        if not self._calls.is_armed:
            return None
        fault = self._calls.strike(name, possible)
        if fault is None:
            return None
        if fault.kind in _LASTING and fault.for_ns:
            # The disk is full, or read-only, as a whole.
            self._windows.begin(fault, "*", self._struck.now_ns)
        return _rule(fault)

    def _tidy_up(self) -> None:
        for fault in self._windows.due("delete-referenced", self._struck.now_ns):
            if any(fault is one for one in self._deleted):
                continue
            disk = self._wrapped[CHECKPOINTS].inner
            needed = [path for path in referenced_files(disk) if fault.hits(path)]
            if needed:
                self._deleted.append(fault)
                self._windows.strikes(fault)
                disk.delete(needed[fault.amount % len(needed)])

    # -- the death of a process -----------------------------------------------------------------------------------

    def process_died(self, disks: Mapping[str, MemoryFileSystem]) -> None:
        """A process has died; ``disks``: its disks, by the names given to :meth:`wrap`. Open files and locks are gone
        with it; changes that were not made durable are lost too if the machine died."""
        self._died += 1
        exact = any(fault.number == self._died for fault in self._lost)
        by_chance = self._deaths.is_armed and not exact and self._draws_power_cut()
        for _, disk in sorted(disks.items()):
            disk.crash(self._survival(by_chance=by_chance) if exact or by_chance else _everything_survives)

    def _draws_power_cut(self) -> bool:
        # Not noted here: :meth:`_survival` notes each lost path.
        before = len(self._struck.faults)
        struck = self._deaths.strike("process") is not None
        del self._struck.faults[before:]
        return struck

    def _survival(self, *, by_chance: bool) -> Callable[[str], bool]:
        known: dict[str, bool] = {}

        def survives(path: str) -> bool:
            if path not in known:
                known[path] = self._survives(path, by_chance=by_chance)
            return known[path]

        return survives

    def _survives(self, path: str, *, by_chance: bool) -> bool:
        if by_chance:
            lost = self._struck.draw(2) == 1
            if lost:
                self._struck.note(Fault("lose-unsynced", plain_target(path), number=self._died))
            return not lost
        for at, fault in enumerate(self._lost):
            if fault.number == self._died and fault.hits(path):
                if not self._lost_used[at]:
                    self._lost_used[at] = True
                    self._struck.note(fault)
                return False
        return True

    # -- by chance ----------------------------------------------------------------------------------------------

    def _details(self, fault: Fault) -> Fault:
        struck, kind = self._struck, fault.kind
        if kind == "torn-write":
            return replace(fault, amount=struck.draw(64))
        if kind in ("bit-flip", "truncate"):
            return replace(fault, amount=struck.draw(1 << 12))
        if kind == "write-error":
            return replace(fault, amount=struck.draw(2))
        if kind in _LASTING:
            return replace(fault, for_ns=struck.draw(2) and drawn_duration_ns(struck))
        if kind == "delete-referenced":
            return Fault(kind, at_ns=self._struck.now_ns + 1, amount=struck.draw(16))
        return fault

    @property
    def unused(self) -> tuple[Fault, ...]:
        lost = tuple(fault for fault, used in zip(self._lost, self._lost_used, strict=True) if not used)
        return (*self._calls.unused, *self._tidying.unused, *self._windows.unused, *lost)


def _is_meant(fault: Fault, name: str) -> bool:
    return fault.hits(name) or fault.hits(name.partition(" ")[2])


def _everything_survives(path: str) -> bool:
    return True


_RULES: Mapping[str, FileFault] = {
    "torn-write": FileFault.TORN_WRITE,
    "write-error": FileFault.ERROR_BEFORE,
    "read-error": FileFault.ERROR_BEFORE,
    "bit-flip": FileFault.BIT_FLIP,
    "truncate": FileFault.TRUNCATED,
    "missing": FileFault.MISSING,
    "stale-listing": FileFault.STALE_LISTING,
    "disk-full": FileFault.DISK_FULL,
    "read-only": FileFault.READ_ONLY,
}


def _rule(fault: Fault) -> FaultRule:
    kind, amount = _RULES[fault.kind], fault.amount
    if kind is FileFault.ERROR_BEFORE and fault.kind == "write-error" and amount:
        kind = FileFault.ERROR_AFTER
    return FaultRule(kind, keep_bytes=amount, flip_bit=amount, hide_names=max(1, amount))


def referenced_files(disk: FileSystem) -> list[str]:
    """The files of completed checkpoints, their metadata included, and the shared ones; sorted."""
    paths = sorted(disk.walk_files("/"))
    complete = {path.rpartition("/")[0] for path in paths if path.endswith(f"/{METADATA_FILE_NAME}")}
    return [
        path
        for path in paths
        if path.rpartition("/")[0] in complete or (f"/{CHECKPOINT_PREFIX}" not in path and "/shared/" in path)
    ]
