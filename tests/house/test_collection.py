"""Collecting the tests is quick: a developer who asks for one test waits for it, too."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.house.collection import MADE_KERNELS, kernels_noted

RUNS_AT_IMPORT = """
from engine import CollectionSource, Job
from engine.runtime.execution import Execution, RunConfig
from state_backends.files import MemoryFileSystem

job = Job("early")
job.source(CollectionSource([1])).print()
Execution(job.plan(), RunConfig(), file_system=MemoryFileSystem()).run()
"""


def test_no_module_runs_a_job_while_it_is_imported(request: pytest.FixtureRequest) -> None:
    """Jobs run in tests and in the functions they call, also those that only say which cases there are."""
    assert request.config.stash[MADE_KERNELS] == []


def test_a_run_at_import_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The note names the file; a module that only defines what runs leaves none."""
    eager, lazy = tmp_path / "eager.py", tmp_path / "lazy.py"
    eager.write_text(RUNS_AT_IMPORT, "utf-8")
    lazy.write_text("def made():\n" + RUNS_AT_IMPORT.replace("\n", "\n    "), "utf-8")
    with kernels_noted() as notes:
        runpy.run_path(str(lazy))
        runpy.run_path(str(eager))

    assert notes == [str(eager)]
    assert "1" in capsys.readouterr().out
