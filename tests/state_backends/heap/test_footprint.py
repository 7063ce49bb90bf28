"""The memory cost of keyed state beside the entries themselves."""

from __future__ import annotations

import tracemalloc

from tests.state_backends.support import SUM, heap

KEYS = 60_000


def test_memory_is_close_to_that_of_a_bare_dict() -> None:
    """State and key cache together take less than 100 bytes per key more than one dict of the same entries."""
    keys = list(range(KEYS))
    values = [key + 1000 for key in keys]
    tracemalloc.start()
    try:
        bare = dict(zip(keys, values, strict=True))
        bare_bytes, _ = tracemalloc.get_traced_memory()
        del bare
        before, _ = tracemalloc.get_traced_memory()
        backend = heap(max_parallelism=128)
        backend.reducing_state(SUM).add_many(keys, values, [])
        backend_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert backend.num_entries() == KEYS
    assert backend_bytes - bare_bytes < 100 * KEYS
