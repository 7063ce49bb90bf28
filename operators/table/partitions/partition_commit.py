"""Commits the partitions of a table: the operator, one for the whole table (Flink: ``PartitionCommitter``).

:mod:`operators.table.partitions.partition_committer` decides when; the policies decide how
(:mod:`operators.table.partitions.commit_policies`). The operator keeps the trigger's lists as state.

A partition is committed only after the files that made it committable are visible: writers announce a checkpoint after
they have committed its files, all writers must announce it, and their messages stay in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, check_whole
from engine.elements.operator import Operator, no_records
from operators.basic import SinkOperator
from operators.files.writing import PartitionPathError, partition_values, zone_of
from operators.table.partitions.commit_policies import (
    CommitPolicy,
    PartitionCommitContext,
    SuccessFilePolicy,
    check_policies,
    commit_partition,
    one_process,
    open_policies,
)
from operators.table.partitions.partition_committer import PartitionCommitter
from operators.table.partitions.partition_messages import ANNOUNCEMENT
from operators.table.partitions.partition_time import DefaultPartitionTimeExtractor, PartitionTimeExtractor
from operators.table.partitions.partition_triggers import (
    CommitTrigger,
    PartitionTimePredicate,
    PartitionTimeTrigger,
    ProcessTimePredicate,
    ProcessTimeTrigger,
)
from state_backends.base import path_below, such_that
from state_backends.files import FileSystem

PROCESS_TIME, PARTITION_TIME = "process-time", "partition-time"
TRIGGERS = (PROCESS_TIME, PARTITION_TIME)


class PartitionCommit:
    """When and how partitions are committed.

    ``trigger``              ``"process-time"``: ``delay_ms`` of the clock after the partition was first announced;
                             ``"partition-time"``: when event time has passed the partition's time by
                             ``delay_ms``;
    ``policies``             the commit actions, in this order; by default a success file;
    ``extractor``            reads the values of a partition as a time: ``DefaultPartitionTimeExtractor`` or an object
                             with ``extract(columns, values)``;
    ``watermark_time_zone``  the time zone of these times.

    With process time and no delay a partition is committed with the first checkpoint that holds rows of it, and again
    with later ones that bring more. Raises :class:`ConfigurationError`.
    """

    def __init__(
        self,
        trigger: str = PROCESS_TIME,
        *,
        delay_ms: int = 0,
        policies: Sequence[CommitPolicy] | None = None,
        extractor: PartitionTimeExtractor | None = None,
        watermark_time_zone: str = "UTC",
    ) -> None:
        if trigger not in TRIGGERS:
            raise ConfigurationError(
                f"trigger is {trigger!r}; partitions are committed by {' or '.join(map(repr, TRIGGERS))}"
            )
        check_whole("delay_ms", delay_ms, 0)
        if extractor is not None and not callable(getattr(extractor, "extract", None)):
            raise ConfigurationError(
                f"extractor is a {type(extractor).__name__}; it must have a method extract(columns, values)"
            )
        self.trigger, self.delay_ms = trigger, delay_ms
        self.extractor = DefaultPartitionTimeExtractor() if extractor is None else extractor
        self.zone = zone_of(watermark_time_zone)
        self.policies: tuple[CommitPolicy, ...] = (SuccessFilePolicy(),) if policies is None else tuple(policies)
        check_policies(self.policies)

    def predicate(self, columns: Sequence[str]) -> ProcessTimePredicate | PartitionTimePredicate:
        """Whether a partition of a table with these columns may be committed."""
        if self.trigger == PROCESS_TIME:
            return ProcessTimePredicate(self.delay_ms)
        return PartitionTimePredicate(self.delay_ms, columns, self.extractor, self.zone)

    def check(self, columns: Sequence[str]) -> Callable[[str], object] | None:
        """A function that raises an error for a partition that can never be committed; ``None`` if all can be."""
        predicate = self.predicate(columns)
        return predicate.partition_time_ms if isinstance(predicate, PartitionTimePredicate) else None

    def create_trigger(self, columns: Sequence[str]) -> CommitTrigger:
        """A fresh trigger for a table with these columns."""
        return (ProcessTimeTrigger if self.trigger == PROCESS_TIME else PartitionTimeTrigger)(self.predicate(columns))


class PartitionCommitterOperator(SinkOperator):
    """``path``: the directory of the table; ``columns``: its partition columns."""

    summaries_of = staticmethod(no_records)

    def __init__(self, path: str, columns: Sequence[str], commit: PartitionCommit) -> None:
        self._path = path
        self._columns = tuple(columns)
        self._commit = commit
        self.one_process = one_process(commit.policies)
        trigger = commit.create_trigger(columns)
        partition = such_that("the path of a partition", path_below, self._is_partition)
        self._state_shapes = trigger.state_shapes(partition)
        self._machine = PartitionCommitter(trigger)

    def _is_partition(self, path: str) -> bool:
        try:
            partition_values(path, self._columns)
        except PartitionPathError:
            return False
        return True

    def initialize_state(self) -> None:
        """Open the policies first, so that a table that does not fit is an error before the first record."""
        context, backend = self.context, self.context.operator_backend()
        self._policies = open_policies(self._commit.policies, context.resolve_path, self._columns)
        self._lists = {name: backend.list_state(name, shape) for name, shape in self._state_shapes.items()}
        self._machine.restore({name: list(state.get()) for name, state in self._lists.items()})

    def process_batch(self, batch: Batch) -> None:
        for kind, checkpoint_id, task, number_of_tasks, partitions in batch.values:
            assert kind == ANNOUNCEMENT, kind
            now_ms = self.context.processing_time_ms()
            for partition in self._machine.on_message(checkpoint_id, task, number_of_tasks, partitions, now_ms):
                self._commit_one(partition, now_ms)

    def _commit_one(self, partition: str, now_ms: int) -> None:
        context = self.context
        files, table_path = context.file_system(), context.resolve_path(self._path)
        is_new = commit_partition(self._policies, PartitionCommitContext(files, table_path, partition, now_ms))
        context.metrics.count("numPartitionsCommitted" if is_new else "numPartitionsCommittedAgain")

    def process_watermark(self, timestamp_ms: int) -> None:
        self._machine.on_watermark(timestamp_ms)

    def snapshot_state(self, checkpoint_id: int) -> None:
        elements: dict[str, list[Any]] = self._machine.on_snapshot(checkpoint_id)
        for name, state in self._lists.items():
            state.update(elements[name])

    def fingerprint(self) -> object:
        return self._machine.fingerprint()


class PartitionCommitterSpec:
    """Describes the one committer to the graph."""

    name = "partition-committer"
    parallelism = 1

    def __init__(self, path: str, columns: Sequence[str], commit: PartitionCommit) -> None:
        self.path, self.columns, self.commit = path, tuple(columns), commit

    def create_operator(self) -> Operator:
        return PartitionCommitterOperator(self.path, self.columns, self.commit)

    def fresh(self) -> PartitionCommitterSpec:
        """A copy for another simulation, whose metastore has no partitions yet."""
        commit = copy(self.commit)
        commit.policies = tuple(map(_fresh, commit.policies))
        return PartitionCommitterSpec(self.path, self.columns, commit)

    @property
    def waits_for_event_time(self) -> bool:
        """Whether an announced partition counts as complete."""
        return self.commit.trigger == PARTITION_TIME

    def announced(self, files: FileSystem, table_path: str) -> list[tuple[str, str]]:
        """The announcements to readers of the table in ``table_path``: kind of policy, and partition. Policies that
        cannot list theirs are left out."""
        return [
            (policy.kind, partition)
            for policy in self.commit.policies
            if hasattr(policy, "announced")
            for partition in policy.announced(files, table_path)
        ]


def _fresh(policy: CommitPolicy) -> CommitPolicy:
    made: CommitPolicy = policy.fresh() if hasattr(policy, "fresh") else policy
    return made
