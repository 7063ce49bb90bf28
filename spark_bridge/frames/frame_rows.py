"""The rows of a DataFrame as a source reads them: computed once in a process, in one order, in splits.

Rules.
1. The order is a function of the rows: first by the columns that the user names, then by all others. Spark's own order
   depends on partitions and threads.
2. Row ``i`` belongs to split ``i mod splits``. So the splits of rows in the order of time advance together.
3. The id of a split has the number of its rows and a digest of them. A checkpoint holds the ids, and so it tells other
   rows apart, whatever made them differ.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from engine.elements.errors import JobChangedError
from spark_bridge.canonical import python_rows, sort_canonically
from spark_bridge.crossing import check_result_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DIGESTED_ROWS = 8_192
_FILE_ROWS = 65_536
_DIGEST_BYTES = 8
_SHOWN_SPLITS = 4


@dataclass(frozen=True, slots=True)
class SplitRows:
    """One split. Its rows are in ``table``, or, where another process shall read them, in the file ``path``."""

    id: str
    count: int
    table: Any = None
    path: str = ""

    def load(self) -> Any:
        """The rows, as a ``pyarrow.Table``. Those of a file are mapped, not read."""
        if self.table is not None:
            return self.table
        import pyarrow as pa

        return pa.ipc.open_file(pa.memory_map(self.path)).read_all()

    def stored_at(self, path: str) -> SplitRows:
        """The same rows in a new file."""
        import pyarrow as pa

        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, self.table.schema) as writer:
            writer.write_table(self.table, max_chunksize=_FILE_ROWS)
        return replace(self, table=None, path=path)


def rows_of_frame(frame: DataFrame, order_by: Sequence[str], splits: int) -> list[SplitRows]:
    """Compute a DataFrame, and sort and split its rows.

    Raises :class:`SparkBridgeError` when its rows cannot become records.
    """
    import pyarrow as pa

    check_result_columns(frame)
    table = frame.toArrow()
    others = [name for name in table.column_names if name not in order_by]
    ordered = sort_canonically(table.select([*order_by, *others])).select(table.column_names)
    kinds = frame.schema.simpleString()
    found = []
    for number in range(splits):
        mine = ordered.take(pa.array(range(number, ordered.num_rows, splits), pa.int64()))
        split = f"frame-{number}-of-{splits}-{mine.num_rows}-rows-{_digest(mine, kinds)}"
        found.append(SplitRows(split, mine.num_rows, mine))
    return found


def store_splits(splits: Iterable[SplitRows], directory: str) -> list[SplitRows]:
    """The same rows in files of a directory."""
    os.makedirs(directory)
    return [split.stored_at(os.path.join(directory, f"{number}.arrow")) for number, split in enumerate(splits)]


def _digest(table: Any, kinds: str) -> str:
    """Of the values: the bytes of equal Arrow tables may differ."""
    digest = blake2b(kinds.encode(), digest_size=_DIGEST_BYTES)
    for start in range(0, table.num_rows, _DIGESTED_ROWS):
        for row in python_rows(table.slice(start, _DIGESTED_ROWS)):
            digest.update(repr(tuple(row.values())).encode())
    return digest.hexdigest()


def refuse_other_rows(source: str, known: Iterable[str], now: Sequence[str]) -> None:
    """Raises :class:`JobChangedError` unless a checkpoint has the splits that there are now. ``known``: those of the
    checkpoint, none at a fresh start."""
    before = list(known)
    if not before or set(before) == set(now):
        return
    gone = sorted(set(before) - set(now))
    come = sorted(set(now) - set(before))
    raise JobChangedError(
        f"source {source!r}: its DataFrame has other rows than when the checkpoint was taken\n"
        f"  splits then  {_shown(gone)}\n"
        f"  splits now   {_shown(come)}\n"
        "  an id tells the number of rows in the split and a digest of their values and types; to read on would lose"
        " rows or repeat them\n"
        "  fix: give spark_source a DataFrame that has the same rows every time: write it once"
        " (df.write.parquet(PATH)) and use spark.read.parquet(PATH), with the same splits= and order_by=;\n"
        "    or start the job anew in another storage directory"
    )


def _shown(splits: Sequence[str]) -> str:
    more = len(splits) - _SHOWN_SPLITS
    return ", ".join([*splits[:_SHOWN_SPLITS], *([f"and {more} more"] if more > 0 else [])]) or "none besides"
