"""Checkpointing as pure machines: events in, instructions out.

Nothing here opens a file, reads a clock, draws a random number or starts a thread; the runtime drives these machines
and carries out what they say. On the task's side: the barrier handlers (``aligned``, ``at_least_once``) and the
``task_protocol``. On the job manager's side: the ``coordinator`` with its request queue, plan, completed-checkpoint
store, failure accounting and statistics, the ``restore`` planner and the ``restart`` strategies.

Rules the machines share:

* An event method returns a tuple of instructions; their order is the order of execution.
* When a method returns, the machine's state already is what it will be once the instructions are carried out, so a
  driver may send further events while it still works through them.
* ``validate()`` asserts the invariants; ``fingerprint()`` is a plain comparable tuple of all state that decides what
  happens next.
* Times are virtual and in ns; the caller passes ``now_ns`` in.
"""
