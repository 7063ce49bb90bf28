"""Checkpointing as pure machines: events in, instructions out.

Nothing here opens a file, reads a clock, draws a random number or starts a thread; the runtime drives these machines
and carries out their instructions. Four rooms, each with a front door:

* ``barriers``     when a task takes its snapshot: one handler for each way to treat barriers;
* ``coordinator``  when a checkpoint begins, which answers it waits for, when it is complete, how long it is kept;
* ``subtask``      how a task reacts to a due snapshot, a notification and a finished upload;
* ``restore``      whether and when a failed job is deployed again, and which state each subtask gets.

``failure_reasons``, beside them, lists the reasons of a failed checkpoint; all rooms use it.

Rules the machines share:

* An event method returns a tuple of instructions; their order is the order of execution.
* When a method returns, the machine's state already assumes that the instructions are carried out, so a
  driver may send further events while it still works through them.
* ``validate()`` asserts the invariants; ``fingerprint()`` is a plain comparable tuple of all state that determines
  future behaviour.
* Times are virtual and in ns; the caller passes ``now_ns`` in.
"""
