"""Mistakes about who is who: attempts that are over, transactions that are over, and which subtask a key belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.graph import partitioner
from engine.runtime import restored_channels
from engine.runtime.failover import Failover
from engine.runtime.job_state import RECOVERING, RESTARTING
from operators.memory_transaction_log import MemoryTransactionLog
from state_backends import heap, store_parts
from tests.mutants.mutant import replaced, together


@contextmanager
def zombie_not_fenced() -> Iterator[None]:
    """The log takes what an older producer of a name sends, whoever has taken the name over."""
    log: Any = MemoryTransactionLog
    current = log._current

    def unfenced(self: Any, request: Any, producer: Any, fate: str) -> Any:
        name = self._names.get(producer.transactional_id)
        if name is not None and producer.epoch < name.epoch:
            return name
        return current(self, request, producer, fate)

    with replaced(log, _current=unfenced):
        yield


@contextmanager
def late_marker_obeyed() -> Iterator[None]:
    """A commit or abort of an older transaction, come late, ends the one that is open now."""
    log: Any = MemoryTransactionLog
    carry_out = log._carry_out_end

    def obeying(self: Any, producer: Any, outcome: str, note: int | None) -> str:
        name = self._names.get(producer.transactional_id)
        if name is not None and name.state is not None:
            self._end(producer.transactional_id, name, outcome, note)
            return "ok"
        return str(carry_out(self, producer, outcome, note))

    with replaced(log, _carry_out_end=obeying):
        yield


@contextmanager
def nothing_restored_after_two_failures() -> Iterator[None]:
    """A job manager that dies while the job is being restarted has a successor that finds nothing to restore."""
    kill_master, recover = Failover.kill_master, Failover.recover
    between: dict[int, None] = {}

    def killed(failover: Any, cause: str) -> None:
        if failover._manager.state == RESTARTING:
            between[id(failover)] = None
        kill_master(failover, cause)

    def recovered(failover: Any, failure: int) -> None:
        manager = failover._manager
        if between.pop(id(failover), 0) is None and manager.state == RECOVERING and failure == failover._failures:
            manager.take_over(None)
            manager.deploy_all(None, ())
        else:
            recover(failover, failure)

    with replaced(Failover, kill_master=killed, recover=recovered):
        yield


@contextmanager
def keys_routed_by_hash() -> Iterator[None]:
    """The key group of a key is what Python's own ``hash`` of its text says."""

    def by_hash(key_type: object, max_parallelism: int) -> Callable[[Any], int]:
        return lambda key: hash(str(key)) % max_parallelism

    everywhere = (partitioner, restored_channels, heap, store_parts)
    with together(*(replaced(module, key_group_function=by_hash) for module in everywhere)):
        yield
