"""``weir view``: it makes an earlier run again; what is no whole run of this version is refused, with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from state_backends.base import seal_json, unseal_json
from tests.cli.conftest import BRISK, SUMS, Weir


@pytest.fixture(scope="module")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a short run, with its trace; its job file lies beside it."""
    place = tmp_path_factory.mktemp("original")
    (place / "sums.py").write_text(SUMS)
    files = ("--out", str(place / "run"), "--trace", str(place / "run/trace.jsonl"))
    answer = Weir(place)("run", str(place / "sums.py"), *BRISK, *files)
    assert answer.exit_code == 0, answer.stderr
    return place / "run"


@pytest.fixture
def made(_original: Path, weir: Weir) -> Path:
    """A copy of it, as ``run`` in the working directory."""
    return Path(shutil.copytree(_original, weir.directory / "run"))


@pytest.mark.parametrize("name", ["run", "run/run.json", "run/trace.jsonl"])
def test_an_earlier_run_has_a_page(weir: Weir, made: Path, name: str) -> None:
    """The directory of a run, its report and its trace lead to the page of the same run."""
    answer = weir("view", name, "--html", "page.html")

    assert answer.exit_code == 0, answer.stderr
    assert "another one than before" not in answer.stderr
    assert answer.last_line == "page in page.html. Next: open page.html in a browser"
    assert "takes its snapshot of checkpoint 1" in (weir.directory / "page.html").read_text("utf-8")


def test_a_changed_job_is_noted(weir: Weir, made: Path) -> None:
    """A page of a run that is no longer the same says so."""
    job = weir.directory / "sums.py"
    job.write_text(job.read_text().replace("range(", "range(1, ", 1))

    assert "note: the run is another one than before" in weir("view", "run", "--job", "sums.py").stderr


def _cut_a_line(made: Path) -> None:
    trace = made / "trace.jsonl"
    trace.write_bytes(trace.read_bytes()[:-20])


def _lose_lines(made: Path) -> None:
    trace = made / "trace.jsonl"
    trace.write_bytes(b"".join(trace.read_bytes().splitlines(keepends=True)[:-3]))


def _other_version(made: Path) -> None:
    trace = made / "trace.jsonl"
    trace.write_bytes(trace.read_bytes().replace(b'"trace_version": ', b'"trace_version": 9', 1))


def _edited(change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda made: (made / "run.json").write_text(change((made / "run.json").read_text("utf-8")), "utf-8")


def _resealed(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(made: Path) -> None:
        report = unseal_json((made / "run.json").read_text("utf-8"))
        change(report)
        (made / "run.json").write_text(seal_json(report), "utf-8")

    return damage


def _written(name: str, text: bytes) -> Callable[[Path], object]:
    return lambda made: (made / name).write_bytes(text)


DAMAGES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a line is cut off": ("trace.jsonl", _cut_a_line, "was cut off in line"),
    "lines are missing": ("trace.jsonl", _lose_lines, "it was cut off, or is of another run"),
    "a trace of another version": ("trace.jsonl", _other_version, "is a trace of version 9"),
    "a foreign trace": ("trace.jsonl", _written("trace.jsonl", b'{"spans": []}\n'), "is no trace of Weir (it begins"),
    "binary": ("trace.jsonl", _written("trace.jsonl", bytes(range(256))), "is no trace of Weir"),
    "an empty trace": ("trace.jsonl", _written("trace.jsonl", b""), "is no trace of Weir (it is empty)"),
    "a trace alone": ("trace.jsonl", lambda made: (made / "run.json").unlink(), "there is no run.json beside it"),
    "a trace beside another run": (
        "trace.jsonl", _resealed(lambda report: report["run"].update(trace_file="/x/other.jsonl")),
        "is not of its run",
    ),
    "a report cut off": ("", _edited(lambda text: text[:300]), "was cut off"),
    "a foreign report": ("", _written("run.json", b'["a", "list"]'), "is no report of a run of Weir"),
    "a changed report": (
        "", _edited(lambda text: text.replace("finished", "fimished")), "is damaged (its checksum does not match)",
    ),
    "a report of another version": ("", _resealed(lambda report: report.update(schema_version=9)), "has version 9"),
    "a report without options": (
        "", _resealed(lambda report: report["run"].pop("options")), "is of another version ('options')",
    ),
    "an unknown option": (
        "", _resealed(lambda report: report["run"]["options"].update(warp="9")), "option 'warp' is not known",
    ),
    "a run that has not ended": (
        "", _resealed(lambda report: report["run"].pop("trace_digest")), "has not ended",
    ),
    "a run that went on": (
        "", _resealed(lambda report: report["run"].update(incarnation=2)), "went on from a checkpoint",
    ),
    "nothing of a run": ("", lambda made: (made / "run.json").unlink(), "holds no run.json and no failure.json"),
    "no file": ("", shutil.rmtree, "run/: does not exist"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_cannot_be_viewed_is_refused(weir: Weir, made: Path, damage: str) -> None:
    """The error names the file, the reason and what to do; nothing is written, and no page of another run is shown."""
    name, act, reason = DAMAGES[damage]
    act(made)

    answer = weir("view", f"run/{name}")

    assert answer.exit_code == 11
    assert reason in answer.stderr
    assert "fix: " in answer.stderr
    assert not (weir.directory / "view.html").exists()


def test_a_run_as_a_trace_for_perfetto(weir: Weir, made: Path) -> None:
    """With --perfetto alone there is a trace and no page; the run is the same."""
    pytest.importorskip("perfetto")
    answer = weir("view", "run", "--perfetto", "run.pftrace")

    assert answer.exit_code == 0, answer.stderr
    assert answer.last_line == "trace in run.pftrace. Next: open it at https://ui.perfetto.dev"
    assert "another one than before" not in answer.stderr
    assert (weir.directory / "run.pftrace").stat().st_size > 1_000
    assert not (weir.directory / "view.html").exists()


def test_a_trace_without_a_place_is_refused(weir: Weir) -> None:
    """A file that cannot be written is refused before the run."""
    pytest.importorskip("perfetto")
    answer = weir("run", "sums.py", *BRISK, "--perfetto", "no/such/run.pftrace")

    assert answer.exit_code == 11
    assert "fix: name a file in a directory that exists" in answer.stderr
