"""The job descriptor: exactly as it was written, or accepted by the user; nothing else starts a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.cli.settings import JobDescriptor, RunOptions, read_descriptor, write_descriptor
from engine.elements.errors import StorageError
from state_backends.base import seal_json
from state_backends.files import MemoryFileSystem, write_atomically
from tests.cli.conftest import BRISK, Weir

PLAIN = JobDescriptor("/j/job.py", "job ä", {"a": "1"}, RunOptions.of(seed="é", parallelism=2), "/o", "/w", "0.1")


def files_with(content: bytes) -> MemoryFileSystem:
    """A storage directory `/s` with this descriptor."""
    files = MemoryFileSystem()
    files.make_dirs("/s")
    write_atomically(files, "/s/weir-job.json", content)
    return files


def changed(**changes: Any) -> str:
    """The text of an edited descriptor, whose checksum is that of another one; "gone" takes a key away."""
    state = json.loads(PLAIN.to_json()) | changes
    return json.dumps({name: value for name, value in state.items() if value != "gone"})


def with_options(**changes: Any) -> dict[str, Any]:
    options = RunOptions.of(seed="é", parallelism=2).as_dict() | changes
    return {name: value for name, value in options.items() if value != "gone"}


def test_a_descriptor_comes_back_as_it_was() -> None:
    """With any letters in it, and durably: it must be there before the first checkpoint can be."""
    files = MemoryFileSystem()
    files.make_dirs("/s")
    write_descriptor(files, "/s", PLAIN)
    files.crash()

    assert read_descriptor(files, "/s") == PLAIN


def test_every_changed_byte_is_found() -> None:
    """In a value, the name of a key, a space or the checksum."""
    content = PLAIN.to_json().encode()

    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(StorageError, match=r"weir-job\.json: is damaged"):
            read_descriptor(files_with(bytes(damaged)), "/s")


def test_every_truncation_is_found() -> None:
    """Never half believed, wherever it is cut, by the last line break at the least."""
    content = PLAIN.to_json().encode()

    for length in range(len(content)):
        with pytest.raises(StorageError, match=r"weir-job\.json: is damaged"):
            read_descriptor(files_with(content[:length]), "/s")


WRONG = [
    ({"speed": 3}, "'speed' is nothing that a job descriptor says"),
    ({"stopped_with": "gone"}, "'stopped_with' is missing"),
    ({"output_dir": "gone"}, "'output_dir' is missing"),
    ({"format": "zip"}, "no job descriptor"),
    ({"format_version": 99}, "has format version 99"),
    ({"format_version": True}, "has format version True"),
    ({"params": {"a": 1}}, "not names with texts"),
    ({"params": []}, "not names with texts"),
    ({"job_file": 3}, "job_file is 3, not a text"),
    ({"options": 3}, "options is 3"),
    ({"options": with_options(warp=9)}, "option 'warp' is not known"),
    ({"options": with_options(mode="gone")}, "option 'mode' is missing"),
    ({"options": with_options(parallelism="2")}, "option 'parallelism' is '2'"),
    ({"options": with_options(parallelism=True)}, "option 'parallelism' is True"),
    ({"options": with_options(checkpoints_after_tasks_finish=1)}, "option 'checkpoints_after_tasks_finish' is 1"),
    ({"claim_mode": "mine"}, "claim_mode 'mine' is none of no-claim, claim, legacy"),
    ({"restore_path": "/saved"}, "restore_path and claim_mode belong together"),
    ({"claim_mode": "claim"}, "restore_path and claim_mode belong together"),
    ({"stopped_with": 5}, "stopped_with is 5, not a text"),
    ({"output_dir": ""}, "output_dir is '', which names nothing"),
    ({"working_dir": "/a\0b"}, "working_dir is .*, which names nothing"),
    ({"restore_path": "/a\0b", "claim_mode": "claim"}, "restore_path is .*, which names nothing"),
    ({"job_file": "/\ud800.py"}, "surrogates not allowed"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_what_makes_no_sense_is_refused_even_when_accepted(changes: dict[str, Any], message: str) -> None:
    """Every key is there, none is unknown, and each value is of its type."""
    text = changed(**changes)

    with pytest.raises(StorageError, match=message):
        JobDescriptor.from_json(text, "/s/weir-job.json", accept=True)
    with pytest.raises(StorageError):
        JobDescriptor.from_json(text, "/s/weir-job.json")


def test_nor_does_a_checksum_make_sense_of_it() -> None:
    """An unknown name, a missing one and a value of another type under a checksum that is right."""
    for changes, message in (WRONG[0], WRONG[1], WRONG[4], WRONG[6], WRONG[12]):
        state = json.loads(changed(**changes))
        del state["checksum"]
        with pytest.raises(StorageError, match=message):
            JobDescriptor.from_json(seal_json(state), "/s/weir-job.json")


def test_a_name_that_is_there_twice_is_refused() -> None:
    """Which of the two is meant?"""
    text = PLAIN.to_json().replace('"params"', '"job_name": "other",\n  "params"')

    for accept in (False, True):
        with pytest.raises(StorageError, match="twice"):
            JobDescriptor.from_json(text, "x", accept=accept)


def test_one_that_is_accepted_needs_no_checksum() -> None:
    """A wrong one, or none: the user has read it."""
    assert JobDescriptor.from_json(changed(job_file="/moved.py"), "x", accept=True).job_file == "/moved.py"
    assert JobDescriptor.from_json(changed(checksum="gone"), "x", accept=True) == PLAIN
    with pytest.raises(StorageError, match="it has no checksum"):
        JobDescriptor.from_json(changed(checksum="gone"), "x")


def test_one_of_an_older_version_is_accepted_as_it_was() -> None:
    """Without a checksum, savepoints and later options; refused unless accepted."""
    text = changed(
        format_version=1, checksum="gone", restore_path="gone", claim_mode="gone", stopped_with="gone",
        options=with_options(failover="gone", max_concurrent="gone"),
    )  # fmt: skip

    with pytest.raises(StorageError, match=r"(?s)written by an older version.*weir resume /s --accept-descriptor"):
        JobDescriptor.from_json(text, "/s/weir-job.json")
    assert JobDescriptor.from_json(text, "x", accept=True) == PLAIN


def test_options_of_a_later_version_are_not_demanded() -> None:
    """A descriptor that is as it was written, by a version that had fewer of them."""
    state = json.loads(PLAIN.to_json())
    del state["checksum"], state["options"]["failover"]

    assert JobDescriptor.from_json(seal_json(state), "x") == PLAIN


# --- the verbs that go by it ---


@pytest.fixture
def stored(weir: Weir) -> Weir:
    """A job that has run with a storage directory."""
    assert weir("run", "sums.py", *BRISK, "--param", "records=40", "--storage", "state").exit_code == 0
    return weir


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_nothing_is_started_or_written_with_a_damaged_one(stored: Weir) -> None:
    """By resume and savepoint; the error says what to do, and inspecting the checkpoints is no business of it."""
    path = stored.directory / "state/weir-job.json"
    content = path.read_bytes()
    for at in range(0, len(content), 61):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        before = tree(stored.directory)
        for verb in ("resume", "savepoint"):
            answer = stored(verb, "state")
            assert answer.exit_code == 16, answer.stderr
            assert "--accept-descriptor" in answer.stderr
        assert tree(stored.directory) == before
    assert stored("run", "sums.py", "--storage", "state").exit_code == 16
    assert stored("inspect", "state").exit_code == 0


def test_an_edited_one_is_gone_by_when_accepted(stored: Weir) -> None:
    """The job file lies elsewhere, and a parameter is another one; the accepted values are shown and kept."""
    (stored.directory / "sums.py").rename(stored.directory / "moved.py")
    answer = stored("resume", "state")
    assert (answer.exit_code, "add --accept-descriptor" in answer.stderr) == (19, True)
    path = stored.directory / "state/weir-job.json"
    path.write_text(path.read_text().replace("sums.py", "moved.py").replace('"records": "40"', '"records": "60"'))

    assert stored("resume", "state").exit_code == 16
    accepted = stored("resume", "state", "--accept-descriptor")
    assert accepted.exit_code == 0, accepted.stderr
    assert f"job sums of {stored.directory}/moved.py, parameters records=60, options --batch-size 4" in accepted.stderr
    assert stored("resume", "state").exit_code == 0


def test_an_older_one_is_good_for_a_savepoint_when_accepted(stored: Weir) -> None:
    """A savepoint does not need a run, and the descriptor stays as it is."""
    path = stored.directory / "state/weir-job.json"
    state = json.loads(path.read_text())
    del state["checksum"]
    path.write_text(json.dumps(state | {"format_version": 1}))
    before = path.read_bytes()

    assert stored("savepoint", "state").exit_code == 16
    assert stored("savepoint", "state", "--accept-descriptor").exit_code == 0
    assert path.read_bytes() == before
    assert stored("resume", "state", "--accept-descriptor").exit_code == 0
    assert stored("resume", "state").exit_code == 0
