"""State of the jobs in :mod:`tests.compatibility.job` as one version has written it, in an archive that stays.

``python -m tests.compatibility.archive NAME`` writes ``data/NAME.tar.xz`` with the version that is checked out. An
archive is never written anew: a version that changes a format adds one. Each directory in it is a storage directory,
with the output, as a job left it that was killed between two checkpoints, or that took a savepoint before it died.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

from engine.cli import main
from tests.compatibility.job import SINKS

JOB_FILE = Path(__file__).with_name("job.py")
DATA = JOB_FILE.parent / "data"
_FIXED = ["--seed", "3", "--restart", "none"]
_SHORT = ["--checkpoint-interval", "7rec", "--batch-size", "2"]
# A changelog is materialised every millisecond at most, which is a thousand records.
_LONG = ["--param", "records=1400", "--checkpoint-interval", "100rec", "--batch-size", "7"]
_FORMS = [
    (backend, snapshot)
    for backend in ("heap", "lsm", "changelog", "changelog:lsm")
    for snapshot in ("full", "incremental")
]


def cases() -> Iterator[tuple[str, list[str]]]:
    """Of every directory of an archive: its name, and the options with which its job has run."""
    for backend, snapshot in _FORMS:
        is_changelog = backend.startswith("changelog")
        form = ["--state-backend", backend, "--snapshot", snapshot]
        form += [*_LONG, "--materialization-interval", "1ms"] if is_changelog else _SHORT
        name = f"states-{backend.replace(':', '-')}-{snapshot}"
        stopped_us = 1_207 if is_changelog else 31
        yield name, [*form, "--kill", f"everything@{stopped_us}us"]
        saved = [*form, "--stop-with-savepoint", f"{stopped_us}us", "--savepoint-format"]
        yield f"{name}-saved", [*saved, "canonical"]
        yield f"{name}-saved-native", [*saved, "native"]
    yield "states-in-flight", [*_SHORT, "--mode", "unaligned", "--compression", "zlib", "--kill", "everything@31us"]
    yield "states-copied", [*_SHORT, "--local-recovery", "--kill", "everything@31us"]
    for sink in SINKS:
        yield f"sink-{sink}", [*_SHORT, "--param", f"sink={sink}", "--kill", "count@31us"]


def weir(*arguments: str) -> tuple[int, str]:
    """Run the command in this process: exit code, and everything that it printed."""
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, result.output


def _make(name: str) -> None:
    with tempfile.TemporaryDirectory() as directory, tarfile.open(DATA / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        for case, options in cases():
            storage = f"{directory}/{case}"
            code, printed = weir("run", str(JOB_FILE), "--storage", storage, *_FIXED, *options)
            if "never struck" in printed or (code == 0) != ("-saved" in case):
                raise SystemExit(f"{case}: the job was to be stopped, and was not\n{printed}")
            archive.add(storage, case, filter=_without_history)


def _without_history(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if entry.name.endswith("/run.json"):
        return None
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    _make(*sys.argv[1:])
