"""Which modules begin to run a job while they are imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine.runtime.kernel import Kernel

MADE_KERNELS = pytest.StashKey[list[str]]()
"""In the stash of the configuration: the files that made a kernel while this process collected the tests."""


@contextmanager
def kernels_noted() -> Iterator[list[str]]:
    """While this lasts, every kernel that is made adds the file of the module whose import makes it."""
    notes: list[str] = []
    original = Kernel.__init__

    def noting(self: Kernel, *args: Any, **kwargs: Any) -> None:
        notes.append(_imported_file())
        original(self, *args, **kwargs)

    Kernel.__init__ = noting  # type: ignore[method-assign]
    try:
        yield notes
    finally:
        Kernel.__init__ = original  # type: ignore[method-assign]


def _imported_file() -> str:
    """The file of the innermost module that is being executed."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame.f_code.co_filename
