"""What a file sink says when its file system refuses something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.elements.errors import StorageError


@contextmanager
def storage_problems(operator: str, path: str) -> Iterator[None]:
    """Turn an error of the file system below ``path`` into a ``StorageError`` that says what to do."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise StorageError(
            f"sink {operator!r} cannot write {where}: {error.strerror or error}\n"
            "  check that the directory exists, is writable and has space; then resume from the last checkpoint"
        ) from error
