"""What readers of a committer see, and messages for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from operators.transactions import CommitRequest
from operators.transactions.committables import Message
from operators.transactions.committer_machine import CommittingMachine

Machine = TypeVar("Machine", bound=CommittingMachine)


class Readers:
    """A committer that remembers its requests; ``put_off`` says how often each is put off."""

    def __init__(self, **put_off: int) -> None:
        self.rounds: list[list[Any]] = []
        self._put_off = put_off

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        self.rounds.append([request.committable for request in requests])
        for request in requests:
            if request.retries < self._put_off.get(str(request.committable), 0):
                request.retry_later()

    @property
    def seen(self) -> list[Any]:
        return [payload for asked in self.rounds for payload in asked]


def fed(machine: Machine, *groups: list[Message]) -> Machine:
    for group in groups:
        for message in group:
            machine.add(message)
    return machine
