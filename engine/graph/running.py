"""The port by which a job runs itself. A job is below the runtime, so the package ``engine`` names the function that
makes the run; it is loaded by the first run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.graph.job import Job
    from engine.graph.run_settings import Settings

    # For type checkers alone: the one arrow that points up, listed in setup.cfg.
    from engine.report.run_result import RunResult

    Result = RunResult
    Runner = Callable[[Job, Settings], Result]

_load_runner: Callable[[], Runner]


def run_jobs_by(load_runner: Callable[[], Runner]) -> None:
    """From now on, runs are made by the function that ``load_runner`` returns."""
    global _load_runner  # noqa: PLW0603 - the port, written when the package is imported
    _load_runner = load_runner


def run_job(job: Job, settings: Settings) -> Result:
    return _load_runner()(job, settings)
