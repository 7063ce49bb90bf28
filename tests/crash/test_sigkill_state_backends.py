"""Real processes with much keyed state, killed at seeded instants and resumed, on every state backend.

The stores are so small that a kill finds files half written, half uploaded, half compacted and half materialised. Tasks
die inside the processes as well. Afterwards the output is that of a run without failures. In checkpoint storage no file
is missing, none is damaged and none is there that no checkpoint refers to.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from state_backends.files import LocalFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.crash.jobs.stateful_job import expected_rows
from tests.crash.processes import KilledRun
from tests.scenarios.live_files import check_live_files

RECORDS = 16_000
CHECKPOINTS = 16

BACKENDS = ("lsm", "changelog:lsm", "heap", "rocksdb")
QUICK = "lsm-local"
"""It has a store, and copies on the local disk."""
FORMS = [
    pytest.param(name, place == "local", marks=[] if f"{name}-{place}" == QUICK else pytest.mark.slow)
    for name in BACKENDS
    for place in ("remote", "local")
]


class StatefulRun(KilledRun):
    """The job with much state, on small stores; in each process, tasks die as well."""

    program = "tests.crash.small_stores"
    job_file = Path(__file__).with_name("jobs") / "stateful_job.py"

    def __init__(self, directory: Path, backend: str, *, local_recovery: bool, kills: tuple[str, ...] = ()) -> None:
        if backend == "rocksdb":
            pytest.importorskip("rocksdict")
        options = ["--checkpoint-interval", "1000rec", "--state-backend", backend, "--snapshot", "incremental"]
        if backend.startswith("changelog"):
            options += ["--materialization-interval", "3ms"]
        if local_recovery:
            options.append("--local-recovery")
        every_time = [part for kill in kills for part in ("--kill", kill)]
        super().__init__(directory, RECORDS, *options, every_time=every_time)

    def check(self) -> None:
        """The conditions at the end of the job."""
        storage = CheckpointStorage(LocalFileSystem(), str(self.storage), "killed")
        assert self.committed() == expected_rows(RECORDS)
        assert self.leftovers() == []
        shared = check_live_files(LocalFileSystem(), storage)
        assert len(shared) == 2
        assert all(shared.values())
        assert not os.path.exists(storage.working_dir)


@pytest.mark.parametrize(("backend", "local_recovery"), FORMS)
def test_killed_between_and_behind_checkpoints(backend: str, local_recovery: bool, tmp_path: Path) -> None:
    """Killed at the start, again as soon as the resume has begun, and again later; tasks die in each of them."""
    instants = random.Random(f"{backend} {local_recovery}")
    run = StatefulRun(tmp_path, backend, local_recovery=local_recovery, kills=("visits[1]@2500us",))

    assert not run.kill_behind_checkpoint(instants.randint(3, CHECKPOINTS // 2), instants.uniform(0, 0.05))
    assert not run.kill_behind_start(instants.uniform(0, 0.04))
    assert not run.kill_behind_checkpoint(CHECKPOINTS * 3 // 4, instants.uniform(0, 0.05))
    assert run.go_on()

    assert run.kills == run.resumes == 3
    run.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("backend", "local_recovery"), FORMS)
def test_killed_at_seeded_instants(backend: str, local_recovery: bool, seed: int, tmp_path: Path) -> None:
    """Up to five kills a run: right after a start, and after any checkpoint that was not reached before."""
    instants = random.Random(f"{backend} {local_recovery} {seed}")
    kills = ("visits@4ms", "job manager@7ms") if seed % 2 else ("files[0]@900us",)
    run = StatefulRun(tmp_path, backend, local_recovery=local_recovery, kills=kills)
    finished = False
    for _ in range(5):
        if finished:
            break
        if instants.random() < 0.4:
            finished = run.kill_behind_start(instants.uniform(0, 0.08))
        else:
            finished = run.kill_behind_checkpoint(
                run.newest_checkpoint() + instants.randint(1, 5), instants.uniform(0, 0.06)
            )
    if not finished:
        assert run.go_on()

    assert run.kills
    run.check()
