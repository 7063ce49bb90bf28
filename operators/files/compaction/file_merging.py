"""Merges several files into one, for compaction (Flink: ``ConcatFileCompactor``, ``RecordWiseFileCompactor``).

* Files of rows are joined end to end, and so are compressed ones: readers of gzip, bzip2 and xz continue after the end
  of a stream. The bytes are those of the sources, in their order.
* Parquet files are read and written again, row group by row group, because each has its own footer.
* Another bulk format is merged by its own method ``merge_files(contents, write)``, if it has one.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any

from engine.elements.errors import ConfigurationError
from operators.files.formats import import_pyarrow
from operators.files.writing import BulkTextFormat, Format, ParquetFormat, PendingFile, RecoverableWriter, is_bulk

Merge = Callable[[Iterable[bytes], Callable[[bytes], None]], None]
"""``(contents, write)``: writes one file with the content of the others, in their order."""


def merge_of(format: Format) -> Merge:
    """The function that merges files of ``format``.

    Raises :class:`engine.elements.errors.ConfigurationError` when there is none.
    """
    if not is_bulk(format) or isinstance(format, BulkTextFormat):
        return _concatenate
    if isinstance(format, ParquetFormat):
        return _Parquet(format).merge
    merge: Merge | None = getattr(format, "merge_files", None)
    if merge is None:
        raise ConfigurationError(
            f"files of {type(format).__name__} cannot be compacted: the format does not say how to merge them\n"
            "  fix: give it a method merge_files(contents, write), which writes one file that holds the records"
            " of all, or leave compaction out"
        )
    return merge


def merged(files: RecoverableWriter, target: str, merge: Merge, contents: Iterable[bytes]) -> PendingFile:
    """The file ``target``, made of ``contents`` and still hidden; its name is durable once directories are synced."""
    stream = files.open(target)
    try:
        merge(contents, stream.write)
        return stream.close_for_commit()
    finally:
        stream.close()


def _concatenate(contents: Iterable[bytes], write: Callable[[bytes], None]) -> None:
    for content in contents:
        write(content)


class _Parquet:
    def __init__(self, format: ParquetFormat) -> None:
        self._format = format

    def merge(self, contents: Iterable[bytes], write: Callable[[bytes], None]) -> None:
        pyarrow: Any = import_pyarrow()
        writer = self._format.open_writer(write)
        for content in contents:
            source = pyarrow.parquet.ParquetFile(io.BytesIO(content))
            for rows in source.iter_batches(batch_size=self._format.row_group_rows):
                at = 0
                while at < rows.num_rows:
                    at = writer.add(rows.cast(self._format.schema), at, rows.num_rows)
        writer.finish()
