"""``--results FILE``: the runs of a search as a Parquet file, one row for each, in the order of their numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine.elements.errors import ConfigurationError, MissingDependencyError

if TYPE_CHECKING:
    from engine.explore.search import MadeRun

_ROW_GROUP = 10_000


@contextmanager
def results_file(path: str | None) -> Iterator[Callable[[Sequence[MadeRun]], None] | None]:
    """The function that takes the next runs; ``None`` without a path. The file is there once the search has ended: it
    replaces an older one then, and not before. An error deletes it.

    Raises :class:`ConfigurationError` when it cannot be written, :class:`MissingDependencyError` without PyArrow.
    """
    if path is None:
        yield None
        return
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingDependencyError(
            "--results writes Parquet, which needs PyArrow\n  fix: pip install 'weirstream[parquet]'"
        ) from None
    schema = _schema(pa)
    waiting: list[dict[str, Any]] = []
    unfinished = f"{path}.inprogress"
    try:
        writer = pq.ParquetWriter(unfinished, schema)
    except OSError as error:
        raise ConfigurationError(
            f"--results {path}: {error.strerror or error}\n  fix: name a file in a directory that exists and that you"
            " may write"
        ) from None

    def take(runs: Sequence[MadeRun]) -> None:
        waiting.extend(map(asdict, runs))
        if len(waiting) >= _ROW_GROUP:
            write()

    def write() -> None:
        writer.write_table(pa.Table.from_pylist(waiting, schema))
        waiting.clear()

    try:
        yield take
        write()
        writer.close()
        os.replace(unfinished, path)
    except BaseException:
        writer.close()
        os.unlink(unfinished)
        raise


def _schema(pa: Any) -> Any:
    whole, text, several = pa.int64(), pa.string(), pa.list_(pa.string())
    columns = {
        "number": whole, "seed": text, "mode": text, "outcome": text, "digest": text, "events": whole,
        "choices": whole, "processes": whole, "rows": whole, "judged_by_ledger": pa.bool_(), "faults": several,
        "violates": several, "violation": text,
    }  # fmt: skip
    return pa.schema(columns)
