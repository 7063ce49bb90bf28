"""The changelog state backend (FLIP-158): a log of state changes over any other backend.

* ``changes``: the records of the log, and their replay into a backend
* ``segment``: the file format of a part of the log
* ``log``: collects changes into segments, and uploads segments into files
* ``history``: which snapshot refers to which segment and which materialised snapshot: a pure machine
* ``entries``, ``timers``: tables of states, and timers, that log their changes
* ``strategy``: checkpoints of log and materialised snapshot; materialised snapshots are made in the background
* ``keyed_backend``: the backend itself, and the setting of a job

``docs/changelog.md`` has its guarantees and its costs.
"""

from __future__ import annotations

from state_backends.changelog.keyed_backend import ChangelogStateBackend as ChangelogStateBackend
