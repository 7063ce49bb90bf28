"""The log: it collects changes of states into segments, and uploads segments into files.

Changes gather in memory until the log is *cut*: by a snapshot, by a materialisation, or when they have reached
``segment_bytes``. A cut makes a segment. Its bytes are kept until a checkpoint with it has completed. A full segment is
uploaded in the background when there are streams for that; the next snapshot uploads any other segment.

A change may be made before its value turns out not to be encodable: the result of a program's function. The log then
*loses* the change. The caller gets the error, and every snapshot fails with it until one materialises the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from state_backends.base import BackgroundWork, Executor, KeyGroupRange, KeyType, StateSerializationError
from state_backends.changelog.changes import CLEAR
from state_backends.changelog.history import Cleanup, LogHistory
from state_backends.changelog.segment import LoggedStateId, SegmentHeader, encode_segment
from state_backends.codec import StateCodec
from state_backends.snapshots import CheckpointStream, StateScope, StreamFactory, StreamStateHandle


class SharedUploads:
    """Streams into the shared scope whose files can be deleted together, also after the streams were closed.

    The scope that a writer asks for is ignored: files that outlive a checkpoint must not lie in its directory.
    """

    def __init__(self, streams: StreamFactory) -> None:
        self._streams = streams
        self._made: list[CheckpointStream] = []

    def create_stream(self, scope: StateScope = StateScope.EXCLUSIVE) -> CheckpointStream:
        """A new stream in the shared scope."""
        stream = self._streams.create_stream(StateScope.SHARED)
        self._made.append(stream)
        return stream

    @property
    def written_bytes(self) -> int:
        return sum(stream.tell() for stream in self._made)

    def discard(self) -> None:
        """Delete all files written.

        A file that cannot be deleted stays, unreferenced; the next start of the job deletes it.
        """
        for stream in self._made:
            try:
                stream.discard()
            except OSError:
                continue
        self._made.clear()


@dataclass(slots=True)
class SegmentData:
    """The bytes and the file of one segment; :class:`LogHistory` has the bookkeeping.

    :ivar data: its bytes, while an upload, perhaps another one, may need them
    :ivar stream: the handle of its file, once uploaded
    :ivar upload: deletes that file, while the file is not handed
    """

    first: int
    end: int
    data: bytes | None
    stream: StreamStateHandle | None = None
    upload: SharedUploads | None = None


class ChangeLog:
    """The log of one backend."""

    def __init__(
        self,
        history: LogHistory,
        codec: StateCodec,
        segment_bytes: int,
        max_parallelism: int,
        key_group_range: KeyGroupRange,
        executor: Executor,
        streams: StreamFactory | None,
    ) -> None:
        """``streams``: full segments are uploaded through them in the background; ``None`` = they are not."""
        self._history = history
        self._codec = codec
        self._segment_bytes = segment_bytes
        self._max_parallelism = max_parallelism
        self._key_group_range = key_group_range
        self._executor = executor
        self._streams = streams
        self._records: list[bytes] = []
        self._size = 0
        self._states: dict[LoggedStateId, int] = {}
        self._segments: dict[int, SegmentData] = {}
        self._lost: tuple[int, StateSerializationError] | None = None
        self.key_type: Callable[[], KeyType | None] = lambda: None
        self.schema: Callable[[], Any] = lambda: None

    @property
    def next_number(self) -> int:
        return self._history.end + len(self._records)

    def register(self, state: LoggedStateId) -> int:
        """The index of a state in the records."""
        return self._states.setdefault(state, len(self._states))

    # --- changes --------------------------------------------------------------------------------------------------

    def encode(
        self, operation: int, index: int, keys: list[Any], namespaces: list[Any] | None, payload: list[Any] | None
    ) -> bytes:
        """The record of a change that is about to be made.

        :raises StateSerializationError: names the value that cannot be written; then the change must not be made
        """
        try:
            return self._codec.pack([operation, index, keys, namespaces, payload])
        except Exception as problem:
            raise self._refusal(index, keys, namespaces, payload, problem) from problem

    def append(self, record: bytes) -> None:
        """Log a record whose change was made."""
        self._records.append(record)
        self._size += len(record)
        if self._size >= self._segment_bytes:
            first = self.cut()
            if self._streams is not None and first is not None:
                self._executor.submit(SegmentUpload(self, first, self._streams))

    def append_made(
        self, operation: int, index: int, keys: list[Any], namespaces: list[Any] | None, payload: list[Any] | None
    ) -> None:
        """Log a change that was made. When it cannot be encoded, it is lost, and the error is raised."""
        try:
            record = self.encode(operation, index, keys, namespaces, payload)
        except StateSerializationError as problem:
            self._lost = (self.next_number, problem)
            # This record takes the number of the lost change, so that materialisations before and after it differ.
            self.append(self._codec.pack([CLEAR, index, [], None, None]))
            raise
        self.append(record)

    def check_complete(self) -> None:
        """Refuse a snapshot that would lack a change, with the error that the caller got."""
        if self._lost is not None and self._history.materialized_upto <= self._lost[0]:
            raise self._lost[1]

    def _refusal(
        self, index: int, keys: list[Any], namespaces: list[Any] | None, payload: list[Any] | None, problem: Exception
    ) -> StateSerializationError:
        name = list(self._states)[index].name
        for namespace in namespaces or ():
            self._codec.encode(namespace, f"namespace of state {name!r}")
        for key, value in zip(keys, payload or (), strict=False):
            self._codec.encode(value, f"value of state {name!r} under {key!r}")
        return self._codec.refusal(keys, f"keys of state {name!r}", problem)

    # --- segments -------------------------------------------------------------------------------------------------

    def cut(self) -> int | None:
        """Make a segment of the changes since the last cut; returns its first number, or ``None`` without changes."""
        if not self._records:
            return None
        key_type = self.key_type()
        assert key_type is not None, "something was changed, so some key had a type"
        records, end = self._records, self.next_number
        header = SegmentHeader(
            key_type,
            self._max_parallelism,
            self._key_group_range,
            self._history.end,
            end,
            tuple(self._states),
            self.schema(),
        )
        data = encode_segment(header, records, self._codec)
        self._records, self._size = [], 0
        first = self._history.sealed(end)
        self._segments[first] = SegmentData(first, end, data)
        return first

    def restored(self, first: int, end: int, stream: StreamStateHandle) -> None:
        """Add a segment that a restore has found."""
        self._segments[first] = SegmentData(first, end, None, stream)

    def segment(self, first: int) -> SegmentData:
        """The segment that begins with that change."""
        return self._segments[first]

    def is_waiting(self, first: int) -> bool:
        """Whether a segment is needed and has no file."""
        return self._history.is_needed(first) and not self._history.is_uploaded(first)

    def upload(self, first: int, streams: StreamFactory, by: int | None = None) -> int:
        """Write a segment into a file; returns its size. ``by``: the snapshot that does so, if any. When the write
        fails, no file remains."""
        segment = self._segments[first]
        assert segment.data is not None
        assert segment.stream is None
        upload = SharedUploads(streams)
        stream = upload.create_stream()
        try:
            stream.write(segment.data)
            handle = stream.close_and_get_handle()
        except BaseException:
            upload.discard()
            raise
        assert handle is not None
        segment.stream, segment.upload = handle, upload
        self._history.uploaded(first, by)
        return len(segment.data)

    def handed(self, segments: Iterable[int]) -> None:
        """The files of some segments are handed: the log does not delete them any more."""
        for first in segments:
            self._segments[first].upload = None

    def clean_up(self, cleanup: Cleanup) -> None:
        """Carry out the history's instructions about segments."""
        for first in cleanup.delete_segments:
            segment = self._segments[first]
            if segment.upload is not None:
                segment.upload.discard()
            segment.stream = segment.upload = None
        for first in cleanup.retract_segments:
            self._segments[first].stream = None
        for first in cleanup.confirmed_segments:
            self._segments[first].data = None
        for first in cleanup.forget_segments:
            del self._segments[first]


class SegmentUpload(BackgroundWork):
    """Uploads one segment, if it is still needed and not uploaded yet."""

    def __init__(self, log: ChangeLog, first: int, streams: StreamFactory) -> None:
        self.name = f"upload of log segment {first}"
        self._log = log
        self._first = first
        self._streams: StreamFactory | None = streams

    def step(self) -> int | None:
        """Upload the segment. If that fails, the next snapshot tries again, and fails if its upload fails too."""
        streams, self._streams = self._streams, None
        if streams is None or not self._log.is_waiting(self._first):
            return None
        try:
            return self._log.upload(self._first, streams)
        except OSError:
            return None

    def cancel(self) -> None:
        self._streams = None
