"""The changelog state backend (FLIP-158): a log of state changes over any other backend.

* ``changes``: what a record of the log says, and how records are applied to a backend again
* ``segment``: the file format of a part of the log
* ``log``: changes on their way from states into segments, and segments on their way into files
* ``history``: who refers to which segment and which materialised snapshot: a pure machine
* ``entries``, ``timers``: tables of states, and timers, that log what is done to them
* ``strategy``: checkpoints of log and materialised snapshot, and the latter made in the background
* ``keyed_backend``: all of it put together, and the setting of a job

What it promises, and what it costs, is in ``docs/changelog.md``.
"""

from __future__ import annotations

from state_backends.changelog.keyed_backend import ChangelogStateBackend as ChangelogStateBackend
