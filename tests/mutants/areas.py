"""Mutants by area: mistakes that were written down from the rules alone, before any search was tried on them.

They are hunted with the default settings of a campaign, each on one example that works in its area. What each one
violates was said beforehand, in the words of the rules, together with the invariants that may name it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.mutants import probes
from tests.mutants.mistakes import (
    announcing,
    event_mistakes,
    inputs,
    old_attempts,
    record_acking,
    savepoint_mistakes,
    shared_state,
    state_in_memory,
)
from tests.mutants.mutant import Patch


@dataclass(frozen=True)
class AreaMutant:
    """One mistake.

    ``area``       what it is a mistake of;
    ``mistake``    what the engine does now, in a sentence; ``safeguard``: what is taken away;
    ``source``     where the rule stands, or who made the mistake;
    ``probe``      a few calls that go another way while the mistake is switched on;
    ``needs``      what an example must have for the mistake to show;
    ``violates``   what is broken then, in the words of the rules;
    ``caught_by``  invariants one of which must be what a search reports;
    ``example``    the job file that it is hunted on, with ``params``, chosen by ``needs``;
    ``why_not``    why no search finds it within its time, where that is so.
    """

    area: str
    name: str
    mistake: str
    safeguard: str
    source: str
    patch: Patch
    probe: Callable[[], object]
    needs: str
    violates: str
    caught_by: frozenset[str]
    example: str
    params: tuple[tuple[str, str], ...] = ()
    why_not: str = ""

    @property
    def on(self) -> str:
        return " ".join([self.example.rpartition("/")[2], *(f"{name}={value}" for name, value in self.params)])


TIMERS, SESSIONS, WATERMARKS = "processing-time timers", "sessions that merge", "event time and idleness"
PARTITIONS, FILES, FENCES = "pending partitions", "shared files", "fences against older attempts"
INPUTS, CHANGELOG, COMMITTERS = "three and four inputs", "changelog under load", "committers"
ACKING, SAVEPOINTS = "record acking", "savepoints"
RUNNING, COLUMNS = "running values", "windows of columns"

_OUTPUT = frozenset({"V1", "V2", "V3", "V7", "effects"})
"""What is committed differs from every failure-free run. ``effects`` is the ledger's name for it, which judges where
the output depends on the order of records."""

_VISIBLE = _OUTPUT | {"V17"}
"""The same of sinks whose readers look while the job runs."""

_FILES = frozenset({"V6", "V12", "V13", "V14", "assertion"})
"""A file that a checkpoint needs is not there, or one stays that none needs."""

BY_AREA: tuple[AreaMutant, ...] = (
    AreaMutant(
        TIMERS,
        "timers not armed after a restore",
        "a restored operator asks for no wake-up until its next timer is set",
        "restored processing-time timers are armed at once",
        "Flink InternalTimerServiceImpl.startTimerService: the head of the restored queue is registered",
        event_mistakes.timers_not_armed_after_a_restore,
        probes.restored_timer,
        "a processing-time timer that is pending at a cut, and no later one for that operator",
        "state after a recovery equals that of a failure-free run; a timer fires once in effect",
        _OUTPUT | {"V11", "V13"},
        example="examples/scenarios/processing_timers.py",
    ),
    AreaMutant(
        TIMERS,
        "wake-up not moved",
        "while one wake-up is asked for, an earlier timer gets none",
        "adding an earlier timer moves the one wake-up",
        "Flink InternalTimerServiceImpl.registerProcessingTimeTimer: cancel and register when the head changes",
        event_mistakes.wake_up_not_moved,
        probes.earlier_timer,
        "a timer that is set after a later one, and rows that tell when or whether it has fired",
        "the earliest timer has a wake-up of its own; a timer that is due fires",
        _OUTPUT | {"V11", "V13"},
        example="tests/mutants/scenarios/deadlines.py",
    ),
    AreaMutant(
        TIMERS,
        "fired timers not logged",
        "the changelog hears of timers that are set and deleted, and not of those that fire",
        "every change of state goes to the log, the firing of a timer included",
        "Flink ChangelogKeyGroupedPriorityQueue.poll: a removal is logged",
        event_mistakes.fired_timers_not_logged,
        probes.fired_timer_in_the_log,
        "timers of either clock on a changelog, with a restore after one has fired and before a materialisation",
        "each timer fires exactly once in effect",
        _OUTPUT | {"V11"},
        example="examples/teaching/timers.py",
    ),
    AreaMutant(
        SESSIONS,
        "grown sessions not persisted",
        "the sessions of a key are written only when their number has changed, so not when one has grown",
        "every change of the merging window set is state",
        "Flink MergingWindowSet.persist: the mapping differs from the initial one, whatever its size",
        event_mistakes.grown_sessions_not_persisted,
        probes.grown_session,
        "sessions that grow before a cut and end after the restore",
        "state after a recovery equals that of a failure-free run: the timer of a session finds its session",
        _OUTPUT,
        example="examples/scenarios/merging_sessions.py",
    ),
    AreaMutant(
        SESSIONS,
        "merge not logged",
        "the changelog does not hear that the contents of one session have moved to another",
        "mergeNamespaces is a change of target and sources, and every change goes to the log",
        "Flink AbstractChangelogState: namespaces are merged through the log",
        event_mistakes.merge_not_logged,
        probes.merge_in_the_log,
        "sessions with lists as contents that merge, on a changelog",
        "state after a recovery equals that of a failure-free run",
        _OUTPUT,
        example="examples/scenarios/merging_sessions.py",
    ),
    AreaMutant(
        WATERMARKS,
        "idleness forgotten",
        "after a restore a split that was idle counts as active again",
        "who is idle is part of the snapshot",
        "Flink WatermarksWithIdleness forgets it; operators/time/periodic_watermarks.py says what that does",
        event_mistakes.idleness_forgotten,
        probes.restored_idleness,
        "a split that is idle at a cut, and records of another one that are late by then",
        "committed output equals that of a failure-free run: what is late there is late here",
        _OUTPUT,
        example="examples/scenarios/idle_watermarks.py",
    ),
    AreaMutant(
        WATERMARKS,
        "event time begins anew",
        "a restored operator has seen no watermark",
        "the event time that an operator has reached is part of its state",
        "Flink AbstractStreamOperator does so; operators/time/event_clock.py says what it does",
        event_mistakes.event_time_begins_anew,
        probes.late_after_a_restore,
        "a record that is late, sent after a cut that its watermark was ahead of",
        "committed output equals that of a failure-free run: a window fires once",
        _OUTPUT | {"V11"},
        example="tests/mutants/scenarios/late_records.py",
    ),
    AreaMutant(
        PARTITIONS,
        "pending partitions not restored",
        "a restored committer knows only the partitions that are announced from then on",
        "pending partitions are state of the trigger",
        "Flink PartitionTimeCommitTrigger: the list state of pending partitions",
        announcing.pending_partitions_not_restored,
        probes.pending_partition,
        "partitions that are announced before a cut and whole after the restore",
        "every partition with rows is committed once it is whole",
        _VISIBLE | {"V14"},
        example="examples/scenarios/pending_partitions.py",
    ),
    AreaMutant(
        PARTITIONS,
        "judged by the watermark of the completion",
        "a partition is whole when event time has passed it by the time the checkpoint is announced",
        "the watermark that counts is the committer's at its snapshot of the checkpoint",
        "Flink PartitionTimeCommitTrigger: watermark[id], not the current one",
        announcing.judged_by_the_watermark_of_the_completion,
        probes.watermark_of_a_checkpoint,
        "partition-time commits, with records between the barrier and the notification",
        "a partition is not committed before the files of the triggering checkpoint that hold its rows are visible",
        _VISIBLE,
        example="examples/scenarios/pending_partitions.py",
    ),
    AreaMutant(
        PARTITIONS,
        "only the newest checkpoint announced",
        "a writer announces what the completed checkpoint has brought, and nothing of those before it",
        "an announcement covers what is new up to the checkpoint that is complete",
        "Flink AbstractStreamingWriter: headMap(checkpointId, inclusive)",
        announcing.only_the_newest_announced,
        probes.two_checkpoints_announced,
        "a notification that is lost, or a checkpoint that is aborted, between two that bring partitions",
        "a later notification covers everything recorded for ids up to its own; no partition is forgotten",
        _VISIBLE | {"V14"},
        example="examples/scenarios/pending_partitions.py",
        why_not=(
            "a second safeguard hides it: a partition without an open part is announced because it has become inactive,"
            " whatever checkpoint had brought it, and every checkpoint closes the parts of a partition that is whole"
        ),
    ),
    AreaMutant(
        FILES,
        "placeholders do not count",
        "a checkpoint that refers to an older file by a placeholder does not count as its user",
        "last used is the newest checkpoint that refers to the file, however it does",
        "Flink SharedStateRegistryImpl.registerReference: advanceLastUsingCheckpointID",
        shared_state.placeholders_do_not_count,
        probes.file_in_use,
        "incremental checkpoints whose files live longer than the checkpoint that brought them",
        "every file reachable from a retained completed checkpoint exists",
        _OUTPUT | _FILES,
        example="examples/scenarios/shared_files.py",
    ),
    AreaMutant(
        FILES,
        "files outlive their last user",
        "a file that later checkpoints have used is forgotten with the last of them, and not deleted",
        "what no checkpoint from the lowest retained on uses is deleted",
        "Flink SharedStateRegistryImpl.unregisterUnusedState",
        shared_state.files_outlive_their_last_user,
        probes.file_out_of_use,
        "incremental checkpoints, and a file that falls out of use (by compaction) while the job goes on",
        "nothing unreferenced remains after garbage collection",
        _FILES,
        example="examples/scenarios/shared_files.py",
    ),
    AreaMutant(
        FILES,
        "aborted uploads forgotten",
        "an aborted checkpoint takes its uploads out of the registry, and nothing deletes them",
        "files of aborted checkpoints fall at the next completion",
        "Flink CheckpointCoordinator: shared state of aborted checkpoints stays registered",
        shared_state.aborted_uploads_forgotten,
        probes.upload_of_an_aborted_checkpoint,
        "incremental checkpoints of which one is declined or expires after a task has acknowledged it",
        "nothing unreferenced remains after garbage collection",
        _FILES,
        example="examples/scenarios/shared_files.py",
    ),
    AreaMutant(
        FILES,
        "unconfirmed base",
        "an incremental snapshot builds upon the last one that was taken, confirmed or not",
        "only a checkpoint that is confirmed complete is a base",
        "Flink RocksIncrementalSnapshotStrategy: lastCompletedCheckpointId",
        shared_state.unconfirmed_base,
        probes.base_of_an_upload,
        "incremental checkpoints of which one is aborted after a task has written its part",
        "uploaded but unconfirmed files are never a base; a placeholder for an unknown key is an error",
        _OUTPUT | _FILES | {"V5", "V21"},
        example="examples/scenarios/shared_files.py",
    ),
    AreaMutant(
        FENCES,
        "open part shared with a zombie",
        "a restored file sink goes on writing the very file that its predecessor may still be writing",
        "an open part of a checkpoint is given to the attempt that restores it alone",
        "Hadoop's leases, which Flink's HadoopRecoverableFsDataOutputStream takes over",
        old_attempts.open_part_shared_with_a_zombie,
        probes.open_part,
        "a file sink with parts that stay open over checkpoints, and a writer that is paused and given up",
        "no effect is accepted from an attempt older than the current one",
        _VISIBLE | {"V8", "V14"},
        example="examples/scenarios/fenced_writers.py",
        params=(("sink", "files"),),
    ),
    AreaMutant(
        FENCES,
        "database takes older epochs",
        "the database takes rows and transactions from a subtask that another attempt has taken over",
        "who takes over fences all earlier attempts",
        "KIP-98: the epoch of a producer, for a database",
        old_attempts.database_takes_older_epochs,
        probes.older_epoch,
        "a transactional sink into a database whose writer is paused and given up",
        "no effect is accepted from an attempt older than the current one; no transaction stays open",
        _OUTPUT | {"V8", "V9", "V14"},
        example="examples/scenarios/fenced_writers.py",
        params=(("sink", "database"),),
        why_not=(
            "a second safeguard hides it: whoever takes over aborts what earlier attempts have open, so a zombie finds"
            " its transaction gone, and nobody commits what it prepares anew"
        ),
    ),
    AreaMutant(
        FENCES,
        "end of a zombie counts",
        "a task that was given up on reports the end of its input, and its successor counts as ended",
        "messages of attempts that are over change nothing",
        "Carbone et al. 2017 and Flink's execution attempts: stale messages are fenced",
        old_attempts.end_of_a_zombie_counts,
        probes.end_of_a_disowned_task,
        "a task that is paused near the end of its input, and given up",
        "no effect is accepted from an older attempt; the job ends when all input is read and committed",
        _OUTPUT | {"V8", "V13", "assertion"},
        example="examples/scenarios/fenced_writers.py",
        why_not=(
            "not understood: an earlier engine failed for good under it in run 347 (V13); nothing that a minute draws"
            " today shows it"
        ),
    ),
    AreaMutant(
        INPUTS,
        "one barrier per input",
        "a task is aligned when each of its inputs has delivered a barrier, on whichever of its channels",
        "alignment spans all channels of all gates",
        "Flink SingleCheckpointBarrierHandler: numBarriersReceived against open channels, over all gates",
        inputs.one_barrier_per_input,
        probes.two_channels_of_one_input,
        "a task with several inputs, one of which has several channels",
        "cut consistency: received equals sent; no pre-barrier record is missing from the snapshot",
        _OUTPUT | {"V4", "V5", "assertion"},
        example="examples/scenarios/four_inputs.py",
    ),
    AreaMutant(
        INPUTS,
        "times of a join not read",
        "an interval join knows the times of its records from memory alone",
        "what stands beside the state is derived from it after a restore",
        "Flink IntervalJoinOperator keeps the buffers in map state only",
        inputs.times_of_a_join_not_read,
        probes.interval_join_after_a_restore,
        "an interval join whose pairs lie on both sides of a cut",
        "state after a recovery equals that of a failure-free run",
        _OUTPUT,
        example="examples/scenarios/four_inputs.py",
    ),
    AreaMutant(
        INPUTS,
        "rows of a join numbered anew",
        "a restored regular join numbers the rows of a key from 0, over those that are there",
        "a number in state is derived from the state",
        "Flink JoinRecordStateViews: rows are keyed by themselves, or by a counter that is state",
        inputs.rows_of_a_join_numbered_anew,
        probes.regular_join_after_a_restore,
        "a regular join with several rows per key and side, with a cut between them",
        "state after a recovery equals that of a failure-free run",
        _OUTPUT,
        example="examples/scenarios/four_inputs.py",
    ),
    AreaMutant(
        CHANGELOG,
        "log not cut for a materialisation",
        "a materialisation begins in the middle of a segment, whose changes it holds and which is replayed too",
        "the log is cut where a materialisation begins",
        "Flink ChangelogKeyedStateBackend.initMaterialization: upTo = the last appended sequence number",
        shared_state.log_not_cut_for_a_materialisation,
        probes.materialised_in_the_middle,
        "lists on a changelog that materialises while records come",
        "state after a recovery equals that of a failure-free run: nothing is applied twice",
        _OUTPUT,
        example="tests/mutants/scenarios/logged_lists.py",
    ),
    AreaMutant(
        CHANGELOG,
        "log truncated up to what is unconfirmed",
        "the log is let go up to the newest materialisation, before a completed checkpoint refers to that",
        "the log is truncated up to min(subsumed, materialised and confirmed)",
        "Flink ChangelogTruncateHelper",
        shared_state.log_truncated_up_to_what_is_unconfirmed,
        probes.log_of_an_unconfirmed_materialisation,
        "a changelog that materialises, and a checkpoint on the new materialisation that is aborted",
        "every file reachable from a retained checkpoint exists; no change is missing from a restored state",
        _OUTPUT | _FILES,
        example="examples/scenarios/changelog_load.py",
        why_not=(
            "a checkpoint on a new materialisation has to be aborted, and the job to die before the next one completes;"
            " the runs of a minute do not draw that"
        ),
    ),
    AreaMutant(
        COMMITTERS,
        "any notification covers the end",
        "after the end of the input the next notification commits everything, whichever checkpoint it is of",
        "what comes with the end is committed by a checkpoint that began after it",
        "Flink CommitterOperator: lastCompletedCheckpointId after endInput",
        announcing.any_notification_covers_the_end,
        probes.late_notification_after_the_end,
        "a sink with committers, and a checkpoint from before the end that completes after it",
        "nothing is visible before the checkpoint that contains it completed",
        _VISIBLE,
        example="examples/sinks.py",
        params=(("sink", "committing"),),
    ),
    AreaMutant(
        COMMITTERS,
        "not all subtasks awaited",
        "the global committer takes a checkpoint for whole when nothing is missing of those who have spoken",
        "the global committer waits until the committables of all subtasks are present",
        "Flink GlobalCommitterOperator: hasGloballyReceivedAll",
        announcing.not_all_subtasks_awaited,
        probes.half_a_checkpoint,
        "a sink with a global committer behind several subtasks, whose output tells what was committed together",
        "a checkpoint is committed globally as a whole, once",
        _VISIBLE | {"assertion"},
        example="examples/scenarios/committers.py",
    ),
    AreaMutant(
        COMMITTERS,
        "compacted before completion",
        "compaction begins with the snapshot, while its files can still be taken back",
        "requests are submitted with the completion of their checkpoint",
        "Flink CompactorOperator.notifyCheckpointComplete",
        announcing.compacted_before_completion,
        probes.compaction_of_an_open_checkpoint,
        "a compacting file sink, with a failure between a snapshot and its completion",
        "nothing becomes visible, and nothing is consumed, before the checkpoint that contains it completed",
        _VISIBLE | {"V14"},
        example="examples/sinks.py",
        params=(("sink", "compacting"),),
        why_not=(
            "a second safeguard hides it: parts roll at every checkpoint there, a restore takes a source by its hidden"
            " name as well, and what was made of files that are taken back is deleted; readers never see a difference"
        ),
    ),
    AreaMutant(
        ACKING,
        "acked before its children",
        "a bolt acknowledges a tuple in one message, and adds the tuples that came of it in the next",
        "a tuple leaves the tree in the same message that adds its children: no early zero",
        "Storm BoltOutputCollectorImpl.ack: edge xor out in one message",
        record_acking.acked_before_its_children,
        probes.tree_with_a_child,
        "two bolts in a row, and a death while the second has not handled its tuple",
        "at-least-once: every record affects the output; no loss",
        frozenset({"V1", "V2"}),
        example="examples/scenarios/record_acking.py",
    ),
    AreaMutant(
        ACKING,
        "timed-out roots forgotten",
        "a spout lets a root go whose time is over, and does not call it failed",
        "expiry at the spout calls fail: the root is sent again",
        "Storm SpoutExecutor: the expiry callback of the pending map",
        record_acking.timed_out_roots_forgotten,
        probes.timed_out_root,
        "a bolt that dies with tuples, or a message to an acker that is lost",
        "at-least-once: every record affects the output; no loss",
        frozenset({"V1", "V2", "V13"}),
        example="examples/scenarios/record_acking.py",
    ),
    AreaMutant(
        ACKING,
        "offsets beyond pending records",
        "a spout commits the position after the newest record that was acknowledged",
        "a position says that everything before it was acknowledged",
        "Storm KafkaSpout OffsetManager: only a contiguous run of acked offsets is committed",
        record_acking.offsets_beyond_pending_records,
        probes.acknowledged_out_of_order,
        "acknowledgements out of order, a commit between them, and the death of the spout",
        "source offsets never pass the last complete record at commit; no loss",
        frozenset({"V1", "V2"}),
        example="examples/scenarios/record_acking.py",
    ),
    AreaMutant(
        ACKING,
        "INIT counted twice",
        "an acker takes an INIT that comes again for another one",
        "a message that the network delivers twice completes no tree",
        "Storm's acker over TCP, where that cannot happen; engine/runtime/acking/acker_task.py says why it must not",
        record_acking.init_counted_twice,
        probes.init_twice,
        "an INIT that is delivered twice, and a death before the root is handled",
        "the value of a root is zero exactly when INIT and all ACKs have arrived; no loss",
        frozenset({"V1", "V2"}),
        example="examples/scenarios/record_acking.py",
    ),
    AreaMutant(
        SAVEPOINTS,
        "savepoint notifies",
        "the completion of a savepoint is told to all tasks, and sinks commit",
        "a plain savepoint sends no notification: a failure goes back to the checkpoint before it",
        "Flink CheckpointCoordinator.completePendingCheckpoint: only checkpoints and synchronous savepoints notify",
        savepoint_mistakes.savepoint_notifies,
        probes.told_of_a_savepoint,
        "a savepoint in the middle of a run with a transactional sink, and a failure before the next checkpoint",
        "committed output equals that of a failure-free run; nothing is committed that is produced again",
        _OUTPUT | {"V6"},
        example="examples/standard_scenario.py",
    ),
    AreaMutant(
        SAVEPOINTS,
        "savepoint retained",
        "a savepoint counts among the retained checkpoints, and subsumes older ones",
        "a savepoint enters no store and subsumes nothing",
        "Flink before FLIP-193 kept savepoints in the completed checkpoint store",
        savepoint_mistakes.savepoint_retained,
        probes.retained_beside_a_savepoint,
        "a savepoint in the middle of a run, and a failure before the next checkpoint",
        "the newest real checkpoint is never subsumed by a savepoint; a retained one can be restored from",
        _OUTPUT | _FILES,
        example="examples/standard_scenario.py",
    ),
    AreaMutant(
        SAVEPOINTS,
        "claim mode ignored",
        "whatever a job was started from is deleted once it is subsumed",
        "without a claim the files of a restored snapshot are never deleted",
        "FLIP-193: NO_CLAIM and LEGACY",
        savepoint_mistakes.claim_mode_ignored,
        probes.subsumed_savepoint,
        "a job that is started from a savepoint without a claim and takes checkpoints of its own",
        "a savepoint is user owned: only an explicit dispose or a claim deletes it",
        _FILES | {"V6", "V18"},
        example="examples/standard_scenario.py",
    ),
    AreaMutant(
        SAVEPOINTS,
        "suspended job drains",
        "a stop without drain ends event time, too",
        "without drain sources stop, no final watermark is sent, and timers stay in the savepoint",
        "Flink StreamTask: SavepointType.suspend against terminate",
        savepoint_mistakes.suspended_job_drains,
        probes.input_of_a_suspended_source,
        "event-time windows or timers, a stop without drain, and a job that goes on from the savepoint",
        "state after a restore equals that of a failure-free run: a timer fires once in effect",
        _OUTPUT | {"V11"},
        example="examples/scenarios/merging_sessions.py",
    ),
    AreaMutant(
        RUNNING,
        "running values not in a snapshot",
        "a snapshot has the key groups as they are, behind the values that batches fold into",
        "a snapshot has the values that run, or writes them into the key groups before",
        "docs/decisions/reduced-values-run-ahead.md: nothing else shows running values",
        state_in_memory.running_values_not_in_a_snapshot,
        probes.snapshot_of_running_values,
        "batches of at least 16 records, keys that come again before and after a cut, and a restore",
        "state after a recovery equals that of a failure-free run",
        _OUTPUT,
        example="tests/mutants/scenarios/running_sums.py",
    ),
    AreaMutant(
        RUNNING,
        "keys of running values remembered",
        "later snapshots have the keys of the first one",
        "the remembered keys are forgotten when a key comes or goes",
        "docs/decisions/reduced-values-run-ahead.md: keys are remembered until one comes or goes",
        state_in_memory.keys_of_running_values_remembered,
        probes.running_value_of_a_new_key,
        "running values over two cuts, a key that comes between them, and a restore from the second",
        "state after a recovery equals that of a failure-free run",
        _OUTPUT,
        example="tests/mutants/scenarios/running_sums.py",
    ),
    AreaMutant(
        RUNNING,
        "running values shared",
        "a snapshot shares values whose parts the function of the user goes on to change",
        "values that can change end to run at a snapshot, and are encoded before the next change",
        "docs/decisions/reduced-values-run-ahead.md: running values stay over a snapshot if they are immutable",
        state_in_memory.running_values_shared,
        probes.running_list_behind_a_snapshot,
        "a function that changes what it was given, batches of at least 16 records, and one of them between a barrier "
        "and the end of the snapshot",
        "a snapshot has the state at the barrier, and nothing after it",
        _OUTPUT,
        example="tests/mutants/scenarios/running_sums.py",
        params=(("values", "lists"),),
    ),
    AreaMutant(
        COLUMNS,
        "waiting records not in a snapshot",
        "windows are written without the records that wait to be folded",
        "a snapshot folds all records that have come",
        "operators/columns/window_columns.py: windows are written to the state before each snapshot",
        state_in_memory.waiting_records_not_in_a_snapshot,
        probes.waiting_record_after_a_restore,
        "windows of columns that are open over a cut, and a restore",
        "state after a recovery equals that of a failure-free run",
        _OUTPUT,
        example="tests/mutants/scenarios/column_windows.py",
    ),
    AreaMutant(
        COLUMNS,
        "fired windows forgotten",
        "a restored window fires again, although all of its keys have fired",
        "for which keys a window that is kept has fired is state",
        "Flink EventTimeTrigger: the timer of a window is deleted when it fires",
        state_in_memory.fired_windows_forgotten,
        probes.kept_window_after_a_restore,
        "windows of columns with an allowed lateness that have fired before a cut, and a restore",
        "a window fires once for the records that have come in time",
        _OUTPUT,
        example="tests/mutants/scenarios/column_windows.py",
    ),
)
