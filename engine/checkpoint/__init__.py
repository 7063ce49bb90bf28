"""Checkpointing as pure machines: events in, instructions out.

Nothing here opens a file, reads a clock, draws a random number or starts a thread; the runtime drives these machines
and carries out what they say. Four rooms, each with a front door:

* ``barriers``     when a task takes its snapshot: one handler for each way to treat barriers;
* ``coordinator``  when a checkpoint begins, what it waits for, when it is complete, how long it is kept;
* ``subtask``      what a snapshot that is due, a notification and a finished upload lead to in a task;
* ``restore``      whether and when a failed job is deployed again, and which state each subtask gets.

``failure_reasons``, beside them, says why a checkpoint failed; all rooms use it.

Rules the machines share:

* An event method returns a tuple of instructions; their order is the order of execution.
* When a method returns, the machine's state already is what it will be once the instructions are carried out, so a
  driver may send further events while it still works through them.
* ``validate()`` asserts the invariants; ``fingerprint()`` is a plain comparable tuple of all state that decides what
  happens next.
* Times are virtual and in ns; the caller passes ``now_ns`` in.
"""
