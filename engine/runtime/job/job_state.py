"""The states of a job (Flink: ``JobStatus``), and how far it has come."""

from __future__ import annotations

from engine.runtime.kernel import Kernel

CREATED, RUNNING, RESTARTING, RECOVERING = "created", "running", "restarting", "recovering"
"""``restarting``: all tasks are to be deployed anew; ``recovering``: so is the job manager."""

FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"
"""``stopped`` is with a savepoint."""

ENDED = (FINISHED, STOPPED, FAILED)
"""How a job may end."""


class JobProgress:
    """The state of a job, which its parts read and write in common.

    ``attempt``     the newest deployment of tasks, ``deployment`` the newest one of all tasks together;
    ``error``       why it has failed for good; ``notes``: facts worth a line in the report.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.state = CREATED
        self.attempt = 0
        self.deployment = 0
        self.started_ns = kernel.now_ns
        self.failed_ns: int | None = None
        """When the failure began that the job is recovering from."""
        self.error: Exception | None = None
        self.notes: list[str] = []

    @property
    def elapsed(self) -> str:
        """Virtual time since the start of the run, for people."""
        return f"+{(self._kernel.now_ns - self.started_ns) / 1e6:g} ms"

    def note(self, text: str) -> None:
        """Keep a fact for the report."""
        self.notes.append(text)
