"""Files as a source: the files, their division into splits, the assignment of splits, and the readers.

Rules
-----
* ``assignment="static"``: the files are listed when the job starts, and split ``i`` goes to subtask ``i mod
  parallelism``. A restored job lists again. It resumes the splits that it was reading, which must still exist, and
  reads new ones.
* ``assignment="pull"``: an enumerator beside the job manager hands splits out to readers that ask
  (:mod:`operators.files.reading.split_enumerator`). The checkpoint holds the splits not yet handed out, so a restored
  job does not list again. With ``monitor_interval_ms`` it keeps looking for new files.
* A file is cut if the user says how (``split_bytes``), its format can be read from the middle, and it is not
  compressed. With static assignment, the ids of splits do not depend on a file's growth: each is ``split_bytes`` long,
  the last one too. So a file that has grown gains splits and loses none. The former last split is then read on, even if
  it had been read to the former end of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from engine.elements.errors import ConfigurationError, JobChangedError, StateError, check_whole, shorten
from engine.elements.operator import OperatorFactory
from engine.elements.source import SourceContext, SplitReader
from operators.files.formats import (
    Compression,
    LineFormat,
    check_compression,
    checked_paths,
    codec_of,
    list_files,
    open_input,
    stands_for,
)
from operators.files.reading.line_reader import LineReader, OnMalformed
from operators.files.reading.split_enumerator import ORDERS, SplitAssigner
from operators.files.reading.splits import (
    FileSourceSplit,
    FileStatus,
    SplitRange,
    regular_blocks,
    split_id,
    split_range,
    splits_of,
)
from operators.files.reading.stream_formats import StreamFormat, StreamFormatReader, is_stream_format
from state_backends.base import Shape, anything, number, positive, row, whole

if TYPE_CHECKING:
    from typing import BinaryIO

    from operators.time import WatermarkStrategy
    from state_backends.files import FileSystem

Assignment = Literal["static", "pull"]


@runtime_checkable
class BulkInputFormat(Protocol):
    """A format that knows where its files can be cut."""

    def cut(self, file: BinaryIO, path: str, split_bytes: int) -> list[tuple[int, int | None]]:
        """Ranges that together are the file."""

    def open_split(self, file: BinaryIO, split: SplitRange, position: Any, context: SourceContext) -> SplitReader:
        """A reader of one of them."""


class FileSource:
    """The records of files, in the order of their paths unless splits are pulled.

    ``paths``                a file, a directory (all files below it; names starting with ``.`` or ``_`` are hidden), a
                             pattern with ``*``, ``?`` or ``[...]``, or a sequence of those;
    ``format``               ``CsvFormat``, ``JsonLinesFormat``, ``TextFormat`` or anything like them, a
                             ``StreamFormat`` such as ``FixedLengthFormat``, or ``ParquetInputFormat``;
    ``on_malformed``         how to handle a line that does not match the format: ``"fail"`` raises
                             ``MalformedRecordError``, ``"skip"`` drops it, ``"side_output"`` sends a dict with
                             ``path``, ``line``, ``content`` and ``why`` to side output ``malformed``. The latter
                             two count it in ``numRecordsMalformed``;
    ``split_bytes``          cut files into splits of this many bytes (Parquet: row groups with at least this many);
                             ``None``: one split per file;
    ``compression``          ``"auto"`` goes by the end of the name: ``.gz``, ``.bz2``, ``.xz``, ``.zst``;
    ``assignment``           ``"static"`` or ``"pull"``, see the module;
    ``monitor_interval_ms``  look for new files in intervals of virtual time, and never end; only with ``"pull"``;
    ``matching``             a regular expression for whole paths: other files are left out;
    ``assigner``             the order of assignment: ``"lifo"``, the split that was added last comes first (Flink), or
                             ``"fifo"``; only with ``"pull"``.

    Raises ``ConfigurationError`` for options that contradict each other.
    """

    def __init__(
        self,
        paths: str | Sequence[str],
        format: LineFormat | StreamFormat | BulkInputFormat,
        *,
        on_malformed: OnMalformed = "fail",
        split_bytes: int | None = None,
        compression: Compression = "auto",
        assignment: Assignment | None = None,
        monitor_interval_ms: int | None = None,
        assigner: Literal["lifo", "fifo"] = "lifo",
        matching: str | None = None,
    ) -> None:
        is_one = isinstance(format, BulkInputFormat) or is_stream_format(format) or hasattr(format, "parser")
        if isinstance(format, type) or not is_one:
            raise ConfigurationError(
                f"format is {shorten(format)}; use CsvFormat(...), JsonLinesFormat(), TextFormat(),"
                " FixedLengthFormat(...) or ParquetInputFormat(...), or an object like them"
            )
        if on_malformed not in ("fail", "skip", "side_output"):
            raise ConfigurationError(f"on_malformed must be 'fail', 'skip' or 'side_output', got {on_malformed!r}")
        check_whole("split_bytes", split_bytes, or_none=True)
        check_whole("monitor_interval_ms", monitor_interval_ms, or_none=True)
        if assignment not in (None, "static", "pull"):
            raise ConfigurationError(f"assignment must be 'static' or 'pull', got {assignment!r}")
        if assignment == "static" and monitor_interval_ms is not None:
            raise ConfigurationError(
                "monitor_interval_ms= needs assignment='pull': splits that are dealt out at the start are all there are"
            )
        if assigner not in ORDERS:
            raise ConfigurationError(f"assigner must be one of {', '.join(map(repr, ORDERS))}, got {assigner!r}")
        if assigner != "lifo" and assignment != "pull" and monitor_interval_ms is None:
            raise ConfigurationError(
                f"assigner={assigner!r} needs assignment='pull': splits that are dealt out at the start are read side"
                " by side"
            )
        if on_malformed != "fail" and not hasattr(format, "parser"):
            raise ConfigurationError(
                f"on_malformed={on_malformed!r} is for formats of lines; in a malformed file of"
                f" {type(format).__name__} the next record cannot be found"
            )
        check_compression(compression)
        try:
            self._matching = None if matching is None else re.compile(matching)
        except (re.error, TypeError) as error:
            raise ConfigurationError(f"matching is {matching!r}, which is no regular expression: {error}") from None
        self._paths = checked_paths(paths)
        self._format = format
        self._on_malformed: OnMalformed = on_malformed
        self._split_bytes = split_bytes
        self._compression: Compression = compression
        self._is_pulled = assignment == "pull" or monitor_interval_ms is not None
        self.monitor_interval_ms = monitor_interval_ms
        self._assigner = assigner

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, directories and patterns, as given."""
        return self._paths

    # --- which splits there are ---------------------------------------------------------------------------

    def splits(self, context: SourceContext) -> Sequence[str]:
        """The ids of the splits of all files. Raises ``ConfigurationError`` when there are no files."""
        fs = context.file_system()
        return [split for path in self._files(fs) for split in self._ids(fs, path)]

    def _files(self, fs: FileSystem, *, may_be_missing: bool = False) -> list[str]:
        files, matching = list_files(fs, self._paths, may_be_missing=may_be_missing), self._matching
        if matching is None:
            return files
        kept = [path for path in files if matching.fullmatch(path)]
        if not kept and not may_be_missing:
            raise ConfigurationError(
                f"none of the {len(files)} files at {', '.join(map(repr, self._paths))} matches {matching.pattern!r};"
                f" the first is {files[0]!r}\n  the expression stands for the whole path: begin it with .* if need be"
            )
        return kept

    def _ids(self, fs: FileSystem, path: str) -> list[str]:
        size = self._split_bytes
        if size is None or not self._is_splittable(path):
            return [split_id(path, 0, None)]
        if isinstance(self._format, BulkInputFormat):
            return [split_id(path, start, end) for start, end in self._cut(fs, path, size)]
        return [split_id(path, start, start + size) for start in range(0, max(fs.size(path), 1), size)]

    def _is_splittable(self, path: str) -> bool:
        format = self._format
        can_be = not is_stream_format(format) or getattr(format, "splittable", False)
        return can_be and codec_of(path, self._compression) is None

    def _cut(self, fs: FileSystem, path: str, split_bytes: int) -> list[tuple[int, int | None]]:
        assert isinstance(self._format, BulkInputFormat)
        with fs.open_read(path) as file:
            return self._format.cut(file, path, split_bytes)

    def enumerate_splits(self, context: SourceContext, *, is_first: bool) -> list[FileSourceSplit]:
        """The splits of all present files, for the enumerator. A source that looks for new files may find none. After
        the first enumeration it does not cut files, because only one split of a file is taken then.

        Raises ``ConfigurationError`` when there are no files, and ``OSError``.
        """
        fs = context.file_system()
        found: list[FileSourceSplit] = []
        for path in self._files(fs, may_be_missing=self.monitor_interval_ms is not None):
            try:
                found += self._splits_of(fs, path, is_cut=is_first)
            except FileNotFoundError:
                # Deleted since the directory was read.
                if self.monitor_interval_ms is None:
                    raise
        return found

    def _splits_of(self, fs: FileSystem, path: str, *, is_cut: bool) -> list[FileSourceSplit]:
        length, size = fs.size(path), self._split_bytes
        if size is None or not is_cut or not self._is_splittable(path):
            return splits_of(FileStatus(path, length), splittable=False)
        if isinstance(self._format, BulkInputFormat):
            return [
                FileSourceSplit(split_id(path, start, end), path, start, (length if end is None else end) - start)
                for start, end in self._cut(fs, path, size)
            ]
        return splits_of(FileStatus(path, length, regular_blocks(length, size)), splittable=True)

    def grown_splits(self, known: Iterable[str], ids: Sequence[str]) -> list[str]:
        """The last checkpointed split of each file that has gained splits; ``known`` are the checkpoint's splits. A
        reader that finished it has read to the old end of the file; more may follow now."""
        earlier = dict.fromkeys(known)
        gained = {split_range(split).path: None for split in ids if split not in earlier}
        last: dict[str, str] = {}
        for split in ids:
            if split in earlier and (path := split_range(split).path) in gained:
                last[path] = split
        return list(last.values())

    def refuse_changed_splits(self, known: Iterable[str], ids: Sequence[str], context: SourceContext) -> None:
        """Raise ``JobChangedError`` when a file is cut differently than in the checkpoint (its splits are ``known``):
        its read and unread parts cannot be told apart. If a file has lost splits, it has become shorter."""
        now, earlier = dict.fromkeys(ids), dict.fromkeys(known)
        ranges = {split_range(split).path: split for split in ids}
        for split in earlier:
            path = split_range(split).path
            if split not in now and path in ranges:
                if all(one in earlier for one in ids if split_range(one).path == path):
                    raise JobChangedError(
                        f"source {context.name!r} has read {split!r}, and the file is shorter now: its last split is "
                        f"{ranges[path]!r}\n"
                        "  put the old file back, or start the job anew in another storage directory"
                    )
                raise JobChangedError(
                    f"source {context.name!r} has read {split!r}, and the file is cut otherwise now, as in "
                    f"{ranges[path]!r}\n"
                    "  give the source the split_bytes= that it had, or start the job anew in another storage directory"
                )

    # --- reading ------------------------------------------------------------------------------------------

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """A reader of ``split`` from ``position`` on.

        Raises ``StateError`` when the file is gone or no longer reaches to ``position``.
        """
        fs, where = context.file_system(), split_range(split)
        if not stands_for(self._paths, where.path):
            raise StateError(
                f"the checkpoint says that source {context.name!r} reads {where.path!r}, and it reads"
                f" {', '.join(map(repr, self._paths))}; the file was not opened\n"
                "  fix: name the file in paths= too if it is meant; otherwise do not use this checkpoint"
            )
        if not fs.exists(where.path):
            raise StateError(
                f"file {where.path!r} of source {context.name!r} does not exist (any more)\n"
                "  put it back, or start without the checkpoint"
            )
        try:
            file = open_input(fs, where.path, self._compression)
        except PermissionError as error:
            raise ConfigurationError(
                f"file {where.path!r} of source {context.name!r} cannot be read: {error}\n"
                "  give this process the right to read it"
            ) from error
        try:
            return self._reader(file, where, position, context)
        except BaseException:
            file.close()
            raise

    def _reader(self, file: BinaryIO, split: SplitRange, position: Any, context: SourceContext) -> SplitReader:
        format: Any = self._format
        if isinstance(format, BulkInputFormat):
            return format.open_split(file, split, position, context)
        if is_stream_format(format):
            return StreamFormatReader(file, split, format, position, context)
        return LineReader(file, split, format, position, self._on_malformed, context)

    @property
    def position_shape(self) -> Shape:
        """The shape of its readers' positions."""
        if isinstance(self._format, BulkInputFormat):
            return getattr(self._format, "position_shape", anything)
        # Offset and records after it; or offset, line, and checksum of the bytes before, which older versions lack.
        return row(number, whole) if is_stream_format(self._format) else row(whole, positive, more=(whole,))

    # --- with an enumerator -------------------------------------------------------------------------------

    def operator_factory(self, watermarks: WatermarkStrategy | None) -> OperatorFactory | None:
        """The factory of operators for a source whose splits are pulled; ``None`` if they are not."""
        if not self._is_pulled:
            return None
        from operators.files.reading.enumerated_source_operator import EnumeratedSourceFactory

        return EnumeratedSourceFactory(self, watermarks)

    @property
    def create_assigner(self) -> Callable[[], Any]:
        """Returns a function that creates the assigner of an enumerator."""
        return partial(SplitAssigner, self._assigner)
