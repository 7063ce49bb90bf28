"""Which records an at-least-once run processes twice, foretold from the cuts it was restored from.

At-least-once barriers block nothing, so a receiver's snapshot may hold records that its sender had not sent before its
own: the restored sender sends them again. They are the records between the sender's and the receiver's counter in the
cut. Nothing else is repeated, and what a task makes of a repeated record comes to the tasks after it as if it were a
record of its own. A restore from a cut of an attempt that was itself restored repeats what that one had repeated too.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.elements.batch import Batch
from engine.observe.trace_events import AttemptStarted, CheckpointCut, TraceEvent
from engine.runtime.channels import Channel
from tests.scenarios.random.random_graphs import Graph, Rows


class RepeatedRecords:
    """An instrument that also sees what every channel carries, in order. Only for jobs that restart as a whole."""

    def __init__(self, graph: Graph, patch: pytest.MonkeyPatch) -> None:
        self._nodes = {graph.name(at): at for at in range(len(graph.nodes))}
        self._sent: dict[tuple[int, int], list[Any]] = {}
        self._receiver: dict[int, int] = {}
        self._cuts: dict[int, CheckpointCut] = {}
        self._restored: dict[int, int | None] = {}
        put_batch = Channel.put_batch

        def write_down(channel: Channel, batch: Batch) -> None:
            self._sent.setdefault((channel.attempt, channel.index), []).extend(batch.values)
            head = channel.receiver_name.partition(" -> ")[0].partition("[")[0]
            self._receiver[channel.index] = self._nodes[head]
            put_batch(channel, batch)

        patch.setattr(Channel, "put_batch", write_down)

    def __call__(self, event: TraceEvent) -> None:
        if isinstance(event, CheckpointCut):
            self._cuts[event.checkpoint_id] = event
        elif isinstance(event, AttemptStarted):
            self._restored[event.attempt] = event.restored_checkpoint

    @property
    def by_node(self) -> dict[int, Rows]:
        """The records that came to each node twice on the way to the final state of the run."""
        repeated: dict[int, Rows] = {}
        attempt = max(self._restored)
        while (checkpoint_id := self._restored[attempt]) is not None:
            cut = self._cuts[checkpoint_id]
            attempt = cut.attempt
            for index, sent, received in cut.differences:
                again = self._sent[attempt, index][sent:received]
                assert len(again) == received - sent > 0, f"checkpoint {checkpoint_id} loses records on channel {index}"
                repeated.setdefault(self._receiver[index], Counter()).update(again)
        return repeated
