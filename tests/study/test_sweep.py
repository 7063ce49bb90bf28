"""Sweeps: cases, rows that survive an interruption, errors as rows, studies and files that are refused."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine import CollectionSource, ConfigurationError, Job, RunResult, StorageError
from engine.study import Exponential, read_study, sweep
from engine.study.study_file import SCHEMA, StudyIdentity
from engine.study.sweep import identity_of


def totals(mode: str, seed: int) -> RunResult:
    job = Job("totals")
    numbers = job.source(CollectionSource(range(500)), name="numbers")
    numbers.key_by(lambda n: n % 5).reduce(lambda a, b: a + b, name="sum").collect([])
    return job.run(mode=mode, seed=seed, batch_size=20, checkpoint_interval="100us", kills=["sum@250us"])


def squares(x: int, seed: int = 0) -> dict[str, int]:
    return {"square": x * x, "process": 0 if x else os.getpid() * 0}


def test_a_sweep_has_a_row_for_each_combination() -> None:
    """In the order of the values, each with its arguments and what the run measured."""
    table = sweep(totals, mode=["aligned", "none"], seed=range(2), jobs=2)

    assert [(row["mode"], row["seed"], row["status"]) for row in table] == [
        ("aligned", 0, "ok"), ("aligned", 1, "ok"), ("none", 0, "failed"), ("none", 1, "failed"),
    ]  # fmt: skip
    assert (table[0]["attempts"], table[0]["source_records"] - table[0]["replayed_records"]) == (2, 500)
    assert "was killed" in table[2]["error"]
    assert repr(table) == "<study totals: 4 cases of mode, seed, 2 failed>"


def test_a_result_does_not_depend_on_the_other_cases() -> None:
    """Alone or among others, alone in time or not: the same row, and the same again when it is run here."""
    together = sweep(totals, mode="aligned", seed=range(4), jobs=2)
    alone = sweep(totals, mode="aligned", seed=3)

    assert alone[0] == together[3]
    assert together.rerun(3).execution.choices.digest() == together[3]["choices"]


def test_a_case_that_raises_or_dies_is_a_row() -> None:
    """The others go on."""

    def study(x: int) -> float:
        if x == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 1 / (x - 1)

    table = sweep(study, x=[0, 1, 2])

    assert [row["status"] for row in table] == ["died", "failed", "ok"]
    assert [row["error"] for row in table] == [
        "its process died (exit code -9)", "ZeroDivisionError: division by zero", None,
    ]  # fmt: skip
    assert table[2]["value"] == 1.0


def test_cases_may_be_listed() -> None:
    """Instead of a grid; a law is told by its text, and is a law again when its case runs again."""
    cases: list[Mapping[str, Any]] = [{"law": Exponential("2ms"), "n": 1}, {"law": Exponential("3ms"), "n": 2}]
    table = sweep(lambda law, n: law.mean_ns * n, cases=cases)

    assert [(row["law"], row["value"]) for row in table] == [("exponential:2ms", 2e6), ("exponential:3ms", 6e6)]
    assert table.rerun(1) == 6e6


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_an_interrupted_sweep_goes_on(tmp_path: Path, ending: str) -> None:
    """Cases with a row do not run again; more seeds come to those that are there."""
    out, ran = tmp_path / f"out.{ending}", tmp_path / "ran"

    def study(x: int) -> int:
        with ran.open("a") as file:
            file.write(f"{x} ")
        return x

    def stop(done: int, of: int, row: object) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(study, x=range(5), out=out, progress=stop)
    assert [row["x"] for row in read_study(out)] == [0, 1, 2]
    ran.unlink()
    assert [row["value"] for row in sweep(study, x=range(5), out=out)] == [0, 1, 2, 3, 4]
    # One that has a row runs again, to see that it still gives it.
    assert ran.read_text().split() == ["0", "3", "4"]
    ran.unlink()
    assert len(sweep(study, x=range(5), out=out)) == 5
    assert not ran.exists()
    assert [row["x"] for row in sweep(study, x=[6, 2], out=out)] == [6, 2]
    assert ran.read_text().split() == ["2", "6"]
    assert sorted(row["x"] for row in read_study(out)) == [0, 1, 2, 3, 4, 6]


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_rows_are_not_mixed_with_those_of_another_state_of_things(tmp_path: Path, ending: str) -> None:
    """A study calls functions and reads files that its program text does not show: they may have changed."""
    out, data = tmp_path / f"out.{ending}", tmp_path / "data"

    def study(x: int) -> dict[str, float]:
        return {"x2": x * 2, "read": float(data.read_text()) if x else 0.5}

    data.write_text("3.0")
    sweep(study, x=[1, 0], out=out)
    sweep(study, x=[1, 2], out=out)
    before = out.read_bytes()
    for content, told in (("4.0", "it has read = 3.0, and now it gives 4.0"), ("", "now it ends with ValueError: c")):
        data.write_text(content)
        with pytest.raises(StorageError, match=f"a row that study 'study' no longer gives: with x=1 {told}"):
            sweep(study, x=[1, 5], out=out)
    assert out.read_bytes() == before


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_a_case_whose_process_died_runs_again(tmp_path: Path, ending: str) -> None:
    """Its arguments did not decide that. One that raised an error does not."""
    out, memory = tmp_path / f"out.{ending}", tmp_path / "memory"

    def study(x: int) -> float:
        if x == 2 and not memory.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return 1 / x

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    assert [row["status"] for row in sweep(study, x=[1, 0, 2], out=out)] == ["ok", "failed", "died"]
    memory.touch()
    with pytest.raises(KeyboardInterrupt):
        sweep(study, x=[1, 0, 2], out=out, progress=stop)
    assert [row["status"] for row in read_study(out)] == ["ok", "failed", "ok"]
    table = sweep(study, x=[1, 0, 2], out=out)
    assert [row["status"] for row in table] == ["ok", "failed", "ok"]
    assert table.mean("value", by="x")["mean"] == [1, None, 0.5]


@pytest.mark.parametrize("values", [[1, 2.5], ["1", 1, "2m"], [None, True, 0.5], [1 << 70, 1]])
def test_a_case_is_found_by_arguments_of_any_types(values: list[Any], tmp_path: Path) -> None:
    """Numbers, texts and nothing in one column: each case has its row in the file, as it was given."""

    def study(x: object) -> dict[str, str]:
        return {"value": repr(x)}

    first = sweep(study, x=values, out=tmp_path / "out.parquet")
    again = sweep(study, x=values, out=tmp_path / "out.parquet")
    assert [row["value"] for row in again] == [row["value"] for row in first] == list(map(repr, values))
    assert [row["x"] for row in read_study(tmp_path / "out.parquet")] == values


def test_a_row_that_was_cut_off_is_run_again(tmp_path: Path) -> None:
    """A crash in the middle of a write leaves a part of a line."""
    out = tmp_path / "out.jsonl"
    sweep(squares, x=range(3), out=out)
    out.write_bytes(out.read_bytes()[:-10])

    assert [row["x"] for row in read_study(out)] == [0, 1]
    assert [row["square"] for row in sweep(squares, x=range(3), out=out)] == [0, 1, 4]


def test_a_study_that_is_not_determined_by_its_arguments_is_refused() -> None:
    """The clock decides its result; the error names the measure."""

    def clock(x: int) -> dict[str, Any]:
        return {"twice": 2 * x, "now": time.monotonic_ns()}

    with pytest.raises(ConfigurationError, match=r"study 'clock' is not determined .* run twice with x=1.* now = "):
        sweep(clock, x=[1, 2])


def test_results_of_another_study_are_refused(tmp_path: Path) -> None:
    """By its name, its program text, its arguments, and the version of Weir and of the format."""
    out = tmp_path / "out.jsonl"
    sweep(squares, x=1, out=out)
    with pytest.raises(StorageError, match="results of study 'squares', and this is 'totals'"):
        sweep(totals, mode="aligned", seed=1, out=out)
    with pytest.raises(StorageError, match=r"with the arguments x, and this one has seed, x\n"):
        sweep(squares, x=1, seed=2, out=out)
    mine = StudyIdentity("squares", "other text", "0.1.0", ("x",))
    with pytest.raises(StorageError, match="its program text has changed\n  fix: give another file"):
        sweep(squares, x=1, out=out, identity=mine)
    header, *rows = out.read_text().splitlines()
    for change, message in (
        ({"weir_version": "0.0.9"}, "results of Weir 0.0.9, and this is"), ({"schema_version": 9}, "has version 9"),
        ({"schema": "else"}, "is not a results file"),
    ):  # fmt: skip
        out.write_text("\n".join([json.dumps({**json.loads(header), **change}), *rows, ""]))
        with pytest.raises(StorageError, match=message):
            sweep(squares, x=1, out=out)


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_a_sweep_without_rows_leaves_nothing(tmp_path: Path, ending: str) -> None:
    """It was refused, or was killed before its first row: another study may have the name of the file."""
    out = tmp_path / f"out.{ending}"

    def clock(x: int) -> int:
        return time.monotonic_ns()

    with pytest.raises(ConfigurationError, match="is not determined by its arguments"):
        sweep(clock, x=1, out=out)
    assert not list(tmp_path.iterdir())
    killed = Path(f"{out}.journal") if ending == "parquet" else out
    killed.write_text(json.dumps(StudyIdentity("clock", "", "0.1.0", ("x",)).header()) + "\n")
    sweep(squares, x=1, out=out)
    with pytest.raises(StorageError, match="results of study 'squares', and this is 'clock'"):
        sweep(clock, x=1, out=out)
    assert list(tmp_path.iterdir()) == [out]
    assert len(read_study(out)) == 1


def test_the_file_to_delete_is_named(tmp_path: Path) -> None:
    """While a sweep is not at its end, rows are in the journal beside the file."""
    out = tmp_path / "out.parquet"

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(squares, x=[1, 2], out=out, progress=stop)
    with pytest.raises(StorageError, match=r"out.parquet.journal: holds results of study 'squares', .*\n  fix: give"):
        sweep(totals, mode="aligned", seed=1, out=out)
    with pytest.raises(StorageError, match=r"out.parquet.journal: holds a row that study 'squares' no longer gives"):
        sweep(lambda x: 7, x=[1, 2], out=out, identity=identity_of(squares, ("x",), out))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("file/out.jsonl", "file: File exists"), ("file/a/out.parquet", "file/a: Not a directory"),
        ("taken.jsonl", "taken.jsonl: Is a directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_told(tmp_path: Path, name: str, reason: str) -> None:
    """Where, why and what to do; it is no bug."""
    (tmp_path / "file").touch()
    (tmp_path / "taken.jsonl").mkdir()

    with pytest.raises(StorageError, match=f"{name}: cannot be written: .*/{reason}\n  fix: make room for it, or give"):
        sweep(squares, x=1, out=tmp_path / name)
    with pytest.raises(StorageError, match=r"taken.jsonl: cannot be read: Is a directory; give another file"):
        read_study(tmp_path / "taken.jsonl")


def test_a_disk_that_becomes_full_keeps_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row that has no room is run again; no part of a line is in the way of the next one."""
    out, write = tmp_path / "out.jsonl", os.write
    room = [10_000]

    def written(file: int, content: bytes) -> int:
        part = content[: room[0]]
        room[0] -= len(part)
        if not part:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, part)

    with monkeypatch.context() as patched:
        patched.setattr("engine.study.study_file.os.write", written)
        with pytest.raises(StorageError, match="cannot be written: No space left on device"):
            sweep(squares, x=range(3), out=out, progress=lambda done, of, row: room.__setitem__(0, 10))
    assert [row["x"] for row in read_study(out)] == [0]
    assert [row["square"] for row in sweep(squares, x=range(3), out=out)] == [0, 1, 4]


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"\x00\xff\n", b"[]\n", b"hello"])
@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_files_of_others_stay_as_they_are(tmp_path: Path, ending: str, content: bytes) -> None:
    """A file that no sweep wrote is refused and not changed."""
    out = tmp_path / f"out.{ending}"
    out.write_bytes(content)

    with pytest.raises(StorageError, match="is not a results file of a sweep"):
        sweep(squares, x=1, out=out)
    assert out.read_bytes() == content


def test_two_sweeps_do_not_share_a_file(tmp_path: Path) -> None:
    """The second one is refused while the first one writes."""
    out = tmp_path / "out.parquet"

    def second(done: int, of: int, row: object) -> None:
        with pytest.raises(StorageError, match="another sweep writes to it"):
            sweep(squares, x=1, out=out)

    assert len(sweep(squares, x=1, out=out, progress=second)) == 1


def test_a_file_that_does_not_exist_is_named() -> None:
    """Reading says how to get one."""
    with pytest.raises(StorageError, match="there is no such results file; weir sweep --out writes one"):
        read_study("/nowhere/out.parquet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "sweep: there is no case"),
        ({"x": []}, "sweep: x has no values"),
        ({"y": 1}, "study 'squares' does not take these arguments .y=1.: missing a required argument: 'x'"),
        ({"x": [[1]]}, "sweep: x is .1. of type list; an argument is a text, a number"),
        ({"x": [1, 1]}, "sweep: cases 0 and 1 are the same: x=1; give it once"),
        ({"cases": [{"x": 1}, {"y": 1}]}, "sweep: case 1 has the names y, case 0 x"),
        ({"cases": [{"x": 1}], "x": 1}, "sweep: both cases and values of x are given"),
        ({"x": 1, "jobs": 0}, "jobs is 0"),
        ({"status": 1}, "'status' is a column of the results"),
        ({"x": 1, "out": "results.csv"}, "results.csv: the name of a results file ends with .parquet or .jsonl"),
    ],
)
def test_sweeps_that_cannot_be_run_are_refused(arguments: dict[str, Any], message: str) -> None:
    """Before anything runs."""
    with pytest.raises((ConfigurationError, StorageError), match=message):
        sweep(squares, **arguments)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "the study returned None of type NoneType"), ({1: 2}, "named 1"), ({"y": []}, "returned y=[] of type"),
        ({"x": 3}, "a measure named 'x', which a row has already"), ({"status": 3}, "a measure named 'status'"),
    ],
)
def test_what_is_no_measure_is_an_error_of_the_case(returned: object, message: str) -> None:
    """A study returns a result, a number or numbers by name."""
    table = sweep(lambda x: returned, x=1)

    assert table[0]["status"] == "failed"
    assert message in table[0]["error"]


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    """As arguments, which the study gets as those of Python, and as measures: one at a time, or by name."""
    numpy = pytest.importorskip("numpy")

    def study(x: int, share: float) -> Any:
        assert (type(x), type(share)) == (int, float)
        return numpy.float32(x * share) if x == 1 else {"value": numpy.int64(x)}

    out = tmp_path / "out.parquet"
    table = sweep(study, x=numpy.arange(1, 3), share=numpy.linspace(0.5, 1, 2), out=out)
    assert [(row["x"], row["share"], row["value"]) for row in table] == [
        (1, 0.5, 0.5), (1, 1.0, 1.0), (2, 0.5, 2), (2, 1.0, 2),
    ]  # fmt: skip
    assert list(sweep(study, x=[1, 2], share=[0.5, 1.0], out=out)) == list(table)


def test_a_study_without_program_text_needs_no_file(tmp_path: Path) -> None:
    """With a file it is refused, since the file could not tell it from others."""
    space: dict[str, Any] = {}
    exec("def study(x): return x", space)

    assert sweep(space["study"], x=3)[0]["value"] == 3
    with pytest.raises(ConfigurationError, match="the program text of study 'study' is not to be found"):
        sweep(space["study"], x=3, out=tmp_path / "out.jsonl")


def test_rows_are_written_as_cases_end(tmp_path: Path) -> None:
    """Each is on disk before the next one is told."""
    out, seen = tmp_path / "out.parquet", itertools.count(1)

    def look(done: int, of: int, row: object) -> None:
        lines = Path(f"{out}.journal").read_text().splitlines()
        assert json.loads(lines[0])["schema"] == SCHEMA
        assert len(lines) == 1 + next(seen)

    sweep(squares, x=range(3), out=out, progress=look)
    assert next(seen) == 4
    assert not Path(f"{out}.journal").exists()
