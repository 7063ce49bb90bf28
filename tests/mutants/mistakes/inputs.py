"""Mistakes of tasks with several inputs: barriers per input, and data that joins keep beside their state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.checkpoint.barriers import SingleCheckpointHandler
from engine.runtime.tasks import Task
from operators.joins import interval_join, regular_join
from tests.mutants.mutant import replaced, together


@contextmanager
def one_barrier_per_input() -> Iterator[None]:
    """A task is aligned when each of its inputs has delivered a barrier, on whichever of its channels."""
    wire, align = Task.wire, SingleCheckpointHandler._align

    def wired(task: Any, inputs: Any, writers: Any) -> None:
        wire(task, inputs, writers)
        edges = {channel.index: channel.edge for channel in task.place.environment.plan.channels}
        task.gate.handler.edge_of = {channel.input_index: edges[channel.index] for channel in task.inputs}

    def aligned(handler: Any, channel: int, barrier: Any, blocks: bool, now_ns: int, out: list[Any]) -> None:
        edge_of = getattr(handler, "edge_of", None)
        if edge_of is not None:
            alignment = handler._alignment
            seen = {edge_of[one] for one in (*alignment.aligned, channel)}
            if len(seen) == len({edge_of[one] for one in (*alignment.open, *alignment.aligned)}):
                alignment.target = len({*alignment.aligned, channel})
        align(handler, channel, barrier, blocks, now_ns, out)

    with together(replaced(Task, wire=wired), replaced(SingleCheckpointHandler, _align=aligned)):
        yield


@contextmanager
def times_of_a_join_not_read() -> Iterator[None]:
    """An interval join knows the times of its records from memory alone: a restore has none."""
    with replaced(interval_join._Buffer, _times_of=lambda buffer, key: buffer._times.get(key, [])):
        yield


@contextmanager
def rows_of_a_join_numbered_anew() -> Iterator[None]:
    """A regular join numbers the rows of a key from 0 when it does not remember where it was."""

    def added(side: Any, key: Any, row: Any, met: int) -> None:
        number = side.next_numbers.get(key, 0)
        side.next_numbers[key] = number + 1
        side.rows.put(number, (row, met))

    with replaced(regular_join._Side, add=added):
        yield
