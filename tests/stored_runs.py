"""Runs with a storage directory, as ``weir run --storage`` and ``weir resume`` make them, on any file system."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.graph.job import Job
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.storage import open_storage
from state_backends.files import FileSystem


def run_stored(
    job: Job,
    config: RunConfig,
    files: FileSystem,
    *,
    resume: bool = False,
    kills: Iterable[tuple[str, int]] = (),
    **how: Any,
) -> ExecutionResult:
    """One process of the job, with storage in ``/state`` and output in ``/out``; kills are targets with their times."""
    with open_storage("/state", job.name, inline_state_bytes=config.inline_state_bytes, file_system=files) as opened:
        given = {"file_system": files, "output_dir": "/out", "incarnation": opened.incarnation, **how}
        execution = Execution(job.plan(), config, storage=opened.storage, restore=resume, **given)
        for target, at_ns in kills:
            execution.kill(target, at_ns)
        return execution.run()
