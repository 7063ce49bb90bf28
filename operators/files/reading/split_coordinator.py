"""The operator coordinator that drives the enumerator of a file source.

Rules
-----
* It has no file system and no clock. The reader of subtask 0 lists files for it: once at the beginning, on request, and
  in a continuous source in periodic passes, which it reports. A listing that is lost with its reader is
  made again; a restored enumerator does not ask for one.
* Requests that come before the first listing wait for it, in order.
* Splits sent to a reader since the checkpoint that it goes back to are added back, and waiting readers are served.

Events, all of them plain values: a reader sends ``("request",)``, ``("listed", splits)`` and ``("discovered",
splits)``; it gets ``("list",)``, ``("split", split)`` and ``("no more splits",)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.elements.errors import JobChangedError
from engine.elements.operator_coordination import OperatorCoordinator
from operators.files.reading.split_enumerator import (
    Assign,
    AssignmentTracker,
    FileSplitEnumerator,
    Instruction,
    SplitAssigner,
)
from operators.files.reading.splits import FileSourceSplit
from state_backends.base import list_of, nothing, optional, row, text, whole

REQUEST, LISTED, DISCOVERED = "request", "listed", "discovered"
LIST, SPLIT, NO_MORE_SPLITS = "list", "split", "no more splits"

LISTING_READER = 0
"""The subtask that lists files."""


def plain_splits(splits: Iterable[FileSourceSplit]) -> list[tuple[Any, ...]]:
    """Splits as state and events hold them."""
    return [tuple(split) for split in splits]


def splits_from(plain: Iterable[Any]) -> list[FileSourceSplit]:
    """The reverse of :func:`plain_splits`."""
    return [FileSourceSplit(*one) for one in plain]


class FileSplitCoordinator(OperatorCoordinator):
    """Answers the readers of one source."""

    state_shape = staticmethod(optional(row(list_of(row(text, text, whole, whole, nothing)), optional(list_of(text)))))

    def __init__(self, create_assigner: Callable[[], SplitAssigner], *, is_continuous: bool) -> None:
        self._create_assigner = create_assigner
        self._is_continuous = is_continuous
        self._enumerator: FileSplitEnumerator | None = None
        self._tracker = AssignmentTracker()
        self._readers: dict[int, None] = {}
        self._early: dict[int, None] = {}
        """Readers that asked before the first listing."""

    def subtask_ready(self, subtask: int) -> None:
        self._readers[subtask] = None
        if self._enumerator is not None:
            self._enumerator.register_reader(subtask)
        elif subtask == LISTING_READER:
            self.gateways.send(subtask, (LIST,))

    def handle_event(self, subtask: int, event: Any) -> None:
        kind, *content = event
        if kind == REQUEST:
            self._request(subtask)
        elif kind == LISTED:
            self._listed(splits_from(content[0]))
        elif kind == DISCOVERED:
            if self._enumerator is not None:
                self._carry_out(self._enumerator.discover(splits_from(content[0])))
        else:
            raise AssertionError(f"an event of no file source: {event!r}")

    def _request(self, reader: int) -> None:
        if self._enumerator is None:
            self._early[reader] = None
        else:
            self._carry_out(self._enumerator.request_split(reader))

    def _listed(self, splits: list[FileSourceSplit]) -> None:
        if self._enumerator is not None:
            # The second answer to a question that was repeated because the first reader died.
            return
        self._enumerator = FileSplitEnumerator(splits, () if self._is_continuous else None, self._create_assigner())
        for reader in self._readers:
            self._enumerator.register_reader(reader)
        early, self._early = self._early, {}
        for reader in early:
            self._request(reader)

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Assign):
                self._tracker.assigned(instruction.reader, instruction.split)
                self.gateways.send(instruction.reader, (SPLIT, tuple(instruction.split)))
            else:
                self.gateways.send(instruction.reader, (NO_MORE_SPLITS,))

    def checkpoint(self, checkpoint_id: int) -> Any:
        self._tracker.checkpoint(checkpoint_id)
        if self._enumerator is None:
            return None
        splits, paths = self._enumerator.snapshot()
        return (plain_splits(splits), None if paths is None else list(paths))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._tracker.completed(checkpoint_id)

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any) -> None:
        self._tracker = AssignmentTracker()
        self._tracker.checkpoint(checkpoint_id or 0)
        self._readers.clear()
        self._early.clear()
        self._enumerator = None
        if state is not None:
            splits, paths = state
            if self._is_continuous and paths is None:
                raise JobChangedError(
                    "the source was bounded when the checkpoint was taken, and so has no record of the files it has "
                    "read: as a continuous one it would read them again\n"
                    "  leave monitor_interval_ms out, or start without the checkpoint"
                )
            # Without readers: they register and ask again.
            self._enumerator = FileSplitEnumerator(
                splits_from(splits), paths if self._is_continuous else None, self._create_assigner()
            )

    def subtask_reset(self, subtask: int, checkpoint_id: int | None) -> None:
        self._readers.pop(subtask, None)
        self._early.pop(subtask, None)
        lost = self._tracker.take_back(subtask, checkpoint_id)
        if self._enumerator is not None:
            self._enumerator.unregister_reader(subtask)
            self._enumerator.add_splits_back(lost)
            self._carry_out(self._enumerator.serve())

    def fingerprint(self) -> object:
        inner = None if self._enumerator is None else self._enumerator.fingerprint()
        return (inner, self._tracker.fingerprint(), tuple(self._readers), tuple(self._early))
