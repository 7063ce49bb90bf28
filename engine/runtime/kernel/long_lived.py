"""Keeps Python's garbage collector from walking a large graph again and again.

Tasks and channels live as long as their attempt. With a million of them every full collection takes seconds and finds
nothing: most of the time of a large run went there. What is computed does not depend on it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LARGE_CHANNELS = 10_000


@contextmanager
def long_lived(channels: int) -> Iterator[Callable[[], None]]:
    """Around building and running a graph with so many channels; call what it gives between the two.

    Does nothing for small graphs: whoever runs thousands of them in one process is better off with the collector.
    """
    if channels < _LARGE_CHANNELS or not gc.isenabled():
        yield lambda: None
        return
    gc.disable()
    try:

        def built() -> None:
            gc.freeze()
            gc.enable()

        yield built
    finally:
        gc.enable()
        gc.unfreeze()
