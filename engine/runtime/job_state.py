"""The states of a job (Flink: ``JobStatus``)."""

from __future__ import annotations

CREATED, RUNNING, RESTARTING, RECOVERING = "created", "running", "restarting", "recovering"
"""``restarting``: all tasks are to be deployed anew; ``recovering``: so is the job manager."""

FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"
"""``stopped`` is with a savepoint."""

ENDED = (FINISHED, STOPPED, FAILED)
"""How a job may end."""
