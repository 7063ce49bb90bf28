"""Mistakes of record acking: trees closed too early, roots that nothing sends again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from engine.protocols.acking.acker import Acker
from engine.protocols.acking.anchoring import Ack
from engine.protocols.acking.spout_book import SplitProgress, SpoutBook
from engine.runtime.acking import bolt
from tests.mutants.mutant import replaced


@contextmanager
def acked_before_its_children() -> Iterator[None]:
    """A bolt acknowledges a tuple in one message, and adds the tuples that came of it in the next."""

    def separately(one: Any) -> Sequence[Ack]:
        own = [Ack(root, edge) for root, edge in one.edges.items()]
        return [*own, *(Ack(root, one.out) for root in one.edges if one.out)]

    with replaced(bolt, acks_of=separately):
        yield


@contextmanager
def timed_out_roots_forgotten() -> Iterator[None]:
    """A spout lets a root go whose time is over, and does not call it failed."""

    def forgetting(book: Any) -> tuple[Any, ...]:
        book._pending.rotate()
        return ()

    with replaced(SpoutBook, tick=forgetting):
        yield


@contextmanager
def offsets_beyond_pending_records() -> Iterator[None]:
    """A spout commits the position after the newest acknowledged record, even if earlier records are pending."""

    def acked(progress: Any, number: int) -> None:
        while progress._positions and progress._first <= number:
            progress.position = progress._positions.popleft()
            progress._first += 1

    with replaced(SplitProgress, acked=acked):
        yield


@contextmanager
def init_counted_twice() -> Iterator[None]:
    """An acker takes an INIT that comes again for another one."""

    with replaced(Acker, knows_spout_of=lambda acker, root: False):
        yield
