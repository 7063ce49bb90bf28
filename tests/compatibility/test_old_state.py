"""Checkpoints, savepoints, logs and the state of sinks that earlier versions have written restore."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import tarfile
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

import pyarrow.parquet
import pytest

from operators.files.bucketing import read_bucketing_output
from operators.log.disk.log_reader import committed_records
from state_backends.files import LocalFileSystem
from tests.compatibility.archive import DATA, JOB_FILE, cases, weir

ARCHIVES = sorted(DATA.glob("*.tar.xz"))


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked archive; each test changes a directory of its own."""
    directory = tmp_path_factory.mktemp("written")
    with tarfile.open(request.param) as archive:
        archive.extractall(directory, filter="data")
    return directory


CASES = [
    # A job with a changelog takes seconds: the simplest way is quick.
    pytest.param(name, marks=[pytest.mark.slow] if "changelog" in name and "saved" in name else [])
    for name, _ in cases()
]


@pytest.mark.parametrize("case", CASES)
def test_a_job_goes_on_from_what_an_earlier_version_has_written(
    written: Path, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it commits in the end is what an undisturbed run commits, with all rows of before the restart."""
    # The command enters the working directory of the job; other tests of this process are to find theirs again.
    monkeypatch.chdir(tmp_path)
    storage = written / case
    if not storage.exists():
        pytest.skip("this archive is older than the case")
    descriptor = json.loads((storage / "weir-job.json").read_text())
    descriptor["job_file"], descriptor["working_dir"] = str(JOB_FILE), str(tmp_path)
    options = [f"{name}={value}" for name, value in descriptor["params"].items()]
    if case.endswith(("-saved", "-saved-native")):
        (savepoint,) = (storage / "savepoints").iterdir()
        shutil.copytree(storage / "out", tmp_path / "storage/out")
        params = [part for option in options for part in ("--param", option)]
        state = ["--state-backend", descriptor["options"]["state_backend"]]
        state += ["--snapshot", descriptor["options"]["snapshot"]]
        code, printed = weir(
            "run", str(JOB_FILE), "--from", str(savepoint), "--storage", str(tmp_path / "storage"), *params, *state
        )
        storage = tmp_path / "storage"
    else:
        (storage / "weir-job.json").write_text(json.dumps(descriptor))
        code, printed = weir("resume", str(storage), "--accept-descriptor")
    assert code == 0, printed
    assert "attempt 1 started from checkpoint" in printed, printed
    sink = case.removeprefix("sink-") if case.startswith("sink-") else ""
    assert _rows(storage / "out", sink) == _undisturbed(sink, tuple(options))


@cache
def _undisturbed(sink: str, params: tuple[str, ...]) -> list[str]:
    with tempfile.TemporaryDirectory() as storage:
        options = [part for param in params for part in ("--param", param)]
        code, printed = weir("run", str(JOB_FILE), "--storage", storage, *options)
        assert code == 0, printed
        rows = _rows(Path(storage, "out"), sink)
    assert len(rows) >= 60
    return rows


def _rows(out: Path, sink: str) -> list[str]:
    """Everything that a reader sees, sorted; each row with the partition that it is in."""
    if sink == "sqlite":
        with closing(sqlite3.connect(out / "rows.sqlite")) as database:
            return sorted(map(str, database.execute("SELECT key, count FROM rows")))
    if sink == "disk-log":
        partitions = committed_records(LocalFileSystem(), str(out / "log"), "rows", waits=False)
        return sorted(str(record.value) for records in partitions for record in records)
    if sink.startswith("bucketing"):
        by_bucket = read_bucketing_output(LocalFileSystem(), str(out / "rows"))
        return sorted(f"{bucket}: {row}" for bucket, rows in by_bucket.items() for row in rows)
    return sorted(
        f"{file.parent.relative_to(out)}: {row}"
        for file in (out / "rows").rglob("*")
        if file.is_file() and not any(part[0] in "._" for part in file.relative_to(out).parts)
        for row in _rows_of(file)
    )


def _rows_of(file: Path) -> list[str]:
    if file.suffix == ".parquet":
        return [str(row) for row in pyarrow.parquet.read_table(file, partitioning=None).to_pylist()]
    content = file.read_bytes()
    return (gzip.decompress(content) if file.suffix == ".gz" else content).decode().splitlines()
