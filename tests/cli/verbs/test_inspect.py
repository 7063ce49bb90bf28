"""`weir inspect`: shows exactly the state that was stored, and never shows damaged state."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from state_backends.base import LONG, ValueStateDescriptor
from state_backends.files import LocalFileSystem
from state_backends.offline import SnapshotWriter
from tests.cli.conftest import BRISK, SUMS, Answer, Weir


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage directory of a finished run, two checkpoints kept. Not to be changed."""
    weir = Weir(tmp_path_factory.mktemp("finished"))
    (weir.directory / "sums.py").write_text(SUMS)
    answer = weir.process("run", "sums.py", *BRISK, "--storage", "state", "--parallelism", "2", "--retain", "2")
    assert answer.exit_code == 0, answer.stderr
    return weir.directory / "state"


@pytest.fixture
def stored(weir: Weir, finished: Path) -> Weir:
    """The command line in a directory with a copy of that storage directory."""
    shutil.copytree(finished, weir.directory / "state")
    return weir


def newest(weir: Weir) -> Path:
    return max((weir.directory / "state/sums").glob("chk-*"), key=lambda path: int(path.name[4:]))


def operator(answer: Answer, uid: str) -> Any:
    return next(one for one in answer.json()["operators"] if one["uid"] == uid)


def test_state_is_shown_per_operator_subtask_and_key_group(stored: Weir) -> None:
    """The sums of the job are all there, each once, under the key group that owns it."""
    answer = stored("inspect", "state", "--json")
    subtasks = operator(answer, "reduce")["subtasks"]
    sums = {entry["key"]: entry["value"] for one in subtasks for entry in one["keyed"]["states"][0]["shown"]}

    assert answer.exit_code == 0
    assert sums == {key: 40 * (key + 1) for key in range(5)}
    for one in subtasks:
        first, last = one["keyed"]["key_groups"]
        state = one["keyed"]["states"][0]
        assert all(first <= entry["key_group"] <= last for entry in state["shown"])
        assert sum(state["key_groups"].values()) == state["entries"] == len(state["shown"])


def test_operator_state_is_shown_with_its_mode(stored: Weir) -> None:
    """Positions of the source's splits, as split state."""
    subtask = operator(stored("inspect", "state", "--json"), "numbers")["subtasks"][0]
    splits = next(state for state in subtask["operator"]["states"] if state["name"] == "splits")

    assert splits["mode"] == "split"
    assert splits["shown"][0]["$tuple"][:3] == ["collection-0-of-2", 100, True]


def test_text_shows_the_same(stored: Weir) -> None:
    """Uid, kind, key group and value of each entry, and that every byte was verified."""
    text = stored("inspect", "state").stdout

    assert "every byte verified" in text
    assert "operator reduce (sum): parallelism 2 of at most 128" in text
    assert "3 = 160" in text


@pytest.mark.parametrize("how", ["storage", "job", "checkpoint", "metadata", "relative"])
def test_a_checkpoint_is_found_however_it_is_named(stored: Weir, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage or job directory stands for its newest checkpoint."""
    checkpoint = newest(stored)
    paths = {
        "storage": "state",
        "job": "state/sums/",
        "checkpoint": str(checkpoint),
        "metadata": str(checkpoint / "_metadata"),
        "relative": "_metadata",
    }
    if how == "relative":
        monkeypatch.chdir(checkpoint)
    answer = stored("inspect", paths[how], "--json")

    assert answer.json()["checkpoint_id"] == int(checkpoint.name.removeprefix("chk-"))


def test_an_older_checkpoint_can_be_looked_at(stored: Weir) -> None:
    """Retained ones are there too."""
    older = min((stored.directory / "state/sums").glob("chk-*"), key=lambda path: int(path.name[4:]))

    assert stored("inspect", str(older), "--json").json()["checkpoint_id"] == int(older.name[4:])


def test_limit_bounds_what_is_shown_and_says_so(stored: Weir) -> None:
    """Counts stay whole; the rest is announced."""
    answer = stored("inspect", "state", "--json", "--limit", "1")
    states = [one["keyed"]["states"][0] for one in operator(answer, "reduce")["subtasks"]]

    assert sum(state["entries"] for state in states) == 5
    assert all(len(state["shown"]) == 1 for state in states)
    assert "more; --limit shows them" in stored("inspect", "state", "--limit", "1").stdout


def test_one_operator_can_be_picked(stored: Weir) -> None:
    """By uid, with a suggestion for a wrong one."""
    assert [one["uid"] for one in stored("inspect", "state", "--json", "--operator", "out").json()["operators"]] == [
        "out"
    ]
    wrong = stored("inspect", "state", "--operator", "reduse")
    assert wrong.exit_code == 11
    assert "did you mean 'reduce'?" in wrong.stderr


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty"])
def test_damaged_metadata_is_an_error_and_shows_nothing(stored: Weir, damage: str) -> None:
    """The file is named, and no state is printed."""
    path = newest(stored) / "_metadata"
    data = path.read_bytes()
    damaged = {"flip": data[:200] + bytes([data[200] ^ 4]) + data[201:], "truncate": data[:-1], "empty": b""}
    path.write_bytes(damaged[damage])
    answer = stored("inspect", "state", "--json")

    assert answer.exit_code == 15
    assert answer.stdout == ""
    assert "_metadata" in answer.stderr


def test_a_damaged_state_file_is_found_even_when_not_selected(weir: Weir) -> None:
    """Verification covers every byte of the checkpoint, not only the shown part."""
    weir("run", "sums.py", "--param", "records=60000", "--storage", "state")
    (weir.directory / "big.py").write_text(
        "from engine import CollectionSource, FileSink, Job\n"
        "def job():\n"
        "    job = Job('big')\n"
        "    source = job.source(CollectionSource([f'key {n:05}' * 4 for n in range(2000)]))\n"
        "    source.key_by(lambda value: value).reduce(lambda a, b: a, uid='keep').sink(FileSink('sums'))\n"
        "    return job\n"
    )
    weir("run", "big.py", "--storage", "large")
    (file,) = (path for path in (weir.directory / "large/big").glob("chk-*/*") if path.name != "_metadata")
    assert weir("inspect", "large", "--json").json()["files"] == 1
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(bytes(data))
    flipped = weir("inspect", "large", "--operator", "source")
    file.unlink()
    missing = weir("inspect", "large")

    assert flipped.exit_code == 15
    assert file.name in flipped.stderr
    assert missing.exit_code == 16
    assert file.name in missing.stderr


def test_a_checkpoint_without_metadata_never_happened(stored: Weir) -> None:
    """It is not shown, even if other files lie in its directory."""
    (stored.directory / "state/sums/chk-999").mkdir()
    named = stored("inspect", "state/sums/chk-999")

    assert named.exit_code == 16
    assert "never completed" in named.stderr
    assert stored("inspect", "state", "--json").json()["checkpoint_id"] < 999


def test_metadata_of_another_checkpoint_is_foreign(stored: Weir) -> None:
    """A file that was put there from elsewhere does not count as the checkpoint of that directory."""
    older = min((stored.directory / "state/sums").glob("chk-*"), key=lambda path: int(path.name[4:]))
    shutil.copy(older / "_metadata", newest(stored) / "_metadata")
    answer = stored("inspect", "state")

    assert answer.exit_code == 15
    assert f"is the metadata of checkpoint {older.name[4:]}" in answer.stderr


def test_a_checkpoint_that_was_moved_away_is_read_like_a_savepoint(stored: Weir) -> None:
    """A directory of another name holds everything itself; its number is in its metadata."""
    shutil.copytree(newest(stored), stored.directory / "kept")

    assert stored("inspect", "kept", "--json").json()["checkpoint_id"] == int(newest(stored).name[4:])


def test_places_without_a_checkpoint_are_refused(stored: Weir) -> None:
    """No such path, an ordinary file, an ordinary directory, two jobs at once."""
    shutil.copytree(stored.directory / "state/sums", stored.directory / "two/one")
    shutil.copytree(stored.directory / "state/sums", stored.directory / "two/other")
    answers = [stored("inspect", path) for path in ("nowhere", "sums.py", "state/out", "two")]

    assert [answer.exit_code for answer in answers] == [16, 16, 16, 16]
    assert "holds several jobs" in answers[-1].stderr


def test_types_of_the_job_are_shown_without_the_job(weir: Weir) -> None:
    """Looking needs no program: a registered type is shown by its code and fields."""
    (weir.directory / "typed.py").write_text(
        "from dataclasses import dataclass\n"
        "from engine import CollectionSource, FileSink, Job\n"
        "from state_backends.codec import register_record_type\n"
        "@dataclass(frozen=True)\n"
        "class Point:\n"
        "    x: int\n"
        "register_record_type(99, Point)\n"
        "def job():\n"
        "    job = Job('typed')\n"
        "    stream = job.source(CollectionSource([1, 2])).key_by(lambda v: v, value=lambda v: Point(v))\n"
        "    stream.reduce(lambda a, b: a, uid='keep').map(str).sink(FileSink('sums'))\n"
        "    return job\n"
    )
    assert weir.process("run", "typed.py", "--storage", "state").exit_code == 0
    answer = weir.process("inspect", "state", "--json", "--operator", "keep")
    shown = json.loads(answer.stdout)["operators"][0]["subtasks"][0]["keyed"]["states"][0]["shown"]

    assert sorted((entry["key"], entry["value"]["state"]["x"]) for entry in shown) == [(1, 1), (2, 2)]
    assert all(entry["value"]["$type"] == 99 for entry in shown)


def test_a_savepoint_that_was_written_without_a_job_says_so(weir: Weir) -> None:
    """There was no start that it could have been triggered after."""
    writer = SnapshotWriter("sums")
    writer.keyed_operator("reduce", LONG).value_state(ValueStateDescriptor("count")).update_many([1], [2])
    path = writer.write(LocalFileSystem(), str(weir.directory))

    assert "savepoint 1 of job sums (written without a job)" in weir("inspect", path).stdout
