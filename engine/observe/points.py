"""The named points of a run at which something may go wrong: before, after or in the middle of a step.

A point is named after the step in the code (as in sled's fail points), so that a search can shrink over *which* of
its visits fails. The listener decides whether anything happens there. The runtime only reports that it has come there,
and reports nothing without a listener.

The points ``user.*`` are the places where a user's function may raise (Flink tests four of them, and the commit). They
lie inside of the steps that they belong to.

A file of state is written under its own name from the beginning, so that it gets that name when it is created.

The points ``sink.open`` to ``sink.delete`` are the calls by which sinks change their files, one by one: a task that
dies there dies between two renames of one commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BEFORE, AFTER, TORN = "before", "after", "torn"
"""``torn``: in the middle of a write; a prefix of it is left."""

TASK, MASTER, FILES, ACKER = "task", "job manager", "files", "acker"
"""The visitor: a task, the job manager, the writer of the file, or (in mode ``acking``) an acker."""


@dataclass(frozen=True, slots=True)
class Point:
    """``actor``: the visitor; ``phases``: where it may die; ``meaning``: the step."""

    actor: str
    meaning: str
    phases: tuple[str, ...] = (BEFORE, AFTER)


_TORN = (BEFORE, TORN, AFTER)

POINTS: Mapping[str, Point] = {
    "source.emit": Point(TASK, "a source emits a batch"),
    "source.offset-capture": Point(TASK, "a source writes its positions into its state"),
    "barrier.inject": Point(TASK, "a source takes the trigger of a checkpoint"),
    "barrier.receive": Point(TASK, "a task takes a barrier from a channel"),
    "barrier.forward": Point(TASK, "a task sends a barrier on all its outputs"),
    "align.block": Point(TASK, "a channel is blocked behind its barrier"),
    "align.release": Point(TASK, "blocked channels go on"),
    "channel-state.append": Point(TASK, "records in flight become part of a checkpoint"),
    "snapshot.sync": Point(TASK, "the synchronous part of a snapshot"),
    "snapshot.async.write": Point(FILES, "a piece of state is written", _TORN),
    "snapshot.async.fsync": Point(FILES, "a file of state is made durable"),
    "snapshot.async.rename": Point(FILES, "a file of state gets its name"),
    "snapshot.async.dir-fsync": Point(FILES, "the name of a file of state is made durable"),
    "ack.send": Point(TASK, "a task acknowledges its part of a checkpoint"),
    "complete.decide": Point(MASTER, "the last acknowledgement is here: the checkpoint is about to be completed"),
    "manifest.write": Point(FILES, "_metadata is written under its temporary name", _TORN),
    "manifest.rename": Point(FILES, "_metadata gets its name: the checkpoint exists"),
    "notify.send": Point(MASTER, "tasks are told that a checkpoint is complete"),
    "sink.pre-commit": Point(TASK, "a sink makes its transaction ready to be committed"),
    "sink.commit": Point(TASK, "a sink commits what a completed checkpoint covers"),
    "sink.abort": Point(TASK, "a sink takes back what will not be committed"),
    "sink.request": Point(TASK, "a sink asks a log or a database for something", (BEFORE,)),
    "sink.open": Point(FILES, "a sink begins a file"),
    "sink.write": Point(FILES, "a sink writes to a file", _TORN),
    "sink.fsync": Point(FILES, "a sink makes a file durable"),
    "sink.rename": Point(FILES, "a file of a sink gets another name: rolled, committed, or taken back"),
    "sink.dir-fsync": Point(FILES, "a sink makes the names in a directory durable"),
    "sink.truncate": Point(FILES, "a sink cuts a file"),
    "sink.delete": Point(FILES, "a sink deletes a file"),
    "operator.prepare": Point(TASK, "an operator sends what belongs ahead of a barrier: files that are closed"),
    "operator.finish": Point(TASK, "an operator hears that its input has ended"),
    "subsume.delete": Point(MASTER, "a checkpoint that a newer one has replaced is deleted"),
    "restore.read": Point(MASTER, "the newest usable checkpoint is looked for and read"),
    "restore.assign-keys": Point(MASTER, "state is assigned to subtasks"),
    "restore.replay-channel": Point(TASK, "records in flight are put back into a channel"),
    "restore.recover-and-commit": Point(TASK, "an operator takes over its state; sinks commit what it covers"),
    "timer.fire": Point(TASK, "a timer fires"),
    "rescale.split": Point(MASTER, "state is divided among another number of subtasks"),
    "snapshot.async.step": Point(TASK, "one step of the asynchronous part of a snapshot"),
    "background.step": Point(TASK, "one step of what a state backend does beside its task"),
    "acker.receive": Point(ACKER, "an acker takes a message about a root"),
    "spout.replay": Point(TASK, "a source sends a record again"),
    "offsets.commit": Point(TASK, "a source commits how far everything was acknowledged"),
    "user.process": Point(TASK, "a user's functions take records"),
    "user.snapshot": Point(TASK, "an operator brings its state up to date for a snapshot"),
    "user.restore": Point(TASK, "an operator takes over its state"),
    "user.notify": Point(TASK, "an operator hears that a checkpoint is complete, or given up"),
    "user.commit": Point(TASK, "a sink hears that a checkpoint is complete"),
    "user.close": Point(TASK, "an operator releases what it holds"),
}
"""Every point by its name."""
