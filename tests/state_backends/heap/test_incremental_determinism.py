"""The same input gives the same files, whatever the process."""

from __future__ import annotations

from dataclasses import dataclass

from state_backends.base import MapStateDescriptor, StateTtlConfig
from state_backends.codec import StateCodec, TypeRegistry, register_record_type
from tests.hash_seeds import printed
from tests.state_backends.heap.incremental_support import fill, heap, job_over, put


@dataclass
class Record:
    """With a union, whose alternatives have no order of their own."""

    amount: int | str | None
    tags: dict[str, list[float | None]]


def names_and_checksums() -> str:
    """The uploads of two checkpoints with records, text and time-to-live."""
    registry = TypeRegistry()
    register_record_type(40, Record, registry=registry)
    backend = heap(codec=StateCodec(registry))
    fill(backend)
    put(backend, 1, Record("x", {"b": [], "a": [1.0]}))
    expiring = backend.map_state(MapStateDescriptor("expiring", ttl=StateTtlConfig(7)))
    for word in ("zoe", "ada", "eve"):
        expiring.put(word, word)
    job = job_over(backend)
    first = job.checkpoint(1)
    put(backend, 2, "changed")
    return "\n".join(str(handle.to_state()) for handle in (first, job.checkpoint(2)))


def test_hash_seeds_make_no_difference() -> None:
    """Names, sizes and checksums are those of a process with another seed."""
    program = f"from {__name__} import names_and_checksums; print(names_and_checksums())"
    for seed in ("1", "2"):
        assert printed(program, seed).strip() == names_and_checksums()
