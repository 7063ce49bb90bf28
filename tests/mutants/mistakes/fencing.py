"""Mistakes about identity: attempts that are over, transactions that are over, and the subtask of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.graph import partitioner
from engine.runtime.job.failover import Failover
from engine.runtime.job.job_state import RECOVERING, RESTARTING
from engine.runtime.storage import restored_channels
from operators.log.memory_transaction_log import MemoryTransactionLog
from operators.log.port.transaction_log import OK, OPEN, Request
from state_backends.api import key_scope
from tests.mutants.mutant import replaced, together


@contextmanager
def zombie_not_fenced() -> Iterator[None]:
    """A partition takes records without asking which producer has the name now: records of an older producer begin
    a transaction that no sink knows of."""
    log: Any = MemoryTransactionLog
    append = log.append

    def unfenced(self: Any, producer: Any, topic: str, partition: int, values: Any, sequence: int, now_ns: int) -> None:
        name = None if producer is None else self._names[producer.transactional_id]
        if name is None or producer.epoch == name.epoch:
            append(self, producer, topic, partition, values, sequence, now_ns)
            return
        request = Request(
            "append", producer.transactional_id, producer.epoch, topic, partition, len(values), None, now_ns
        )
        fate = self._arrives(request)
        if name.state is None:
            name.state, name.begun_ns = OPEN, self._now_ns
        entries = self._partition(topic, partition)
        name.first_offsets.setdefault((topic, partition), len(entries))
        name.written[topic, partition] = name.written.get((topic, partition), 0) + len(values)
        self._write(entries, producer, values)
        self._answers(request, fate, OK)

    with replaced(log, append=unfenced):
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
        if failover._job.state == RESTARTING:
            between[id(failover)] = None
        kill_master(failover, cause)

    def recovered(failover: Any, failure: int) -> None:
        recovering = failover._job.state == RECOVERING and failure == failover._failures
        if between.pop(id(failover), 0) is None and recovering:
            failover._deployer.take_over(None)
            failover._deployer.deploy_all(None, ())
        else:
            recover(failover, failure)

    with replaced(Failover, kill_master=killed, recover=recovered):
        yield


@contextmanager
def keys_routed_by_hash() -> Iterator[None]:
    """The key group of a key comes from Python's own ``hash`` of its text."""

    def by_hash(key_type: object, max_parallelism: int) -> Callable[[Any], int]:
        return lambda key: hash(str(key)) % max_parallelism

    everywhere = (partitioner, restored_channels, key_scope)
    with together(*(replaced(module, key_group_function=by_hash) for module in everywhere)):
        yield
