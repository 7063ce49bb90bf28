"""Python workers that start with a session. A worker needs a second or two to start and to import Weir, and the session
needs as long for what it does after its first executors are there: so both are done at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any


def begin_workers(context: Any, modules: Sequence[str]) -> threading.Thread:
    """Have the workers of ``context`` start and import the modules, in the background. It is a hint: what cannot be
    imported, or fails, is told by the first task that needs it."""
    thread = threading.Thread(target=_import_everywhere, args=(context, modules), name="weir-workers", daemon=True)
    thread.start()
    return thread


def _import_everywhere(context: Any, modules: Sequence[str]) -> None:
    with suppress(Exception):
        # Twice as many tasks as cores, so that each gets one.
        tasks = 2 * context.defaultParallelism
        context.parallelize(range(tasks), tasks).mapPartitions(_importing(modules)).collect()


def _importing(modules: Sequence[str]) -> Callable[[Iterable[object]], Iterator[object]]:
    # A nested function travels by value: executors without Weir can run it, too. A task that fails would be repeated,
    # and in the log of the JVM.
    def run(rows: Iterable[object]) -> Iterator[object]:
        # Spark starts another worker if this one has not read all of its input.
        list(rows)
        for module in modules:
            with suppress(Exception):
                import_module(module)
        return iter(())

    return run
