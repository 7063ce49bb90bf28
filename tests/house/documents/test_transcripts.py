"""Pages show the real output: of programs, of transcripts, and bytes of files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from state_backends.api import BackendEnvironment, StateBackend
from state_backends.base import LONG, KeyGroupRange, ValueStateDescriptor
from state_backends.files import MemoryFileSystem
from state_backends.heap import HeapStateBackend
from state_backends.lsm import LsmStateBackend
from state_backends.snapshots import (
    CheckpointStorage,
    FullKeyedStateHandle,
    IncrementalKeyedStateHandle,
    SnapshotOptions,
    run_to_completion,
)
from tests.house.documents import transcripts
from tests.house.project import ROOT

_PAGES = (
    "python",
    "state",
    "state-backends",
    "changelog",
    "columnar",
    "state-ttl",
    "schema-evolution",
    "exploration",
    "failure-reports",
    "bucketing-sink",
    "overwrite",
    "channel-state",
    "checkpoint-table",
)
_TRANSCRIPTS = (
    "savepoints",
    "state-backends",
    "database-sinks",
    "committers",
    "state",
    "compaction",
    "sources-and-sinks",
    "file-sink",
    "file-source",
    "partition-commit",
    "partitioned-log",
    "table-connector",
    "failover",
)
_LOOKS_BACK = ("sources-and-sinks", "file-sink", "partitioned-log")
_EXTRAS = {"columnar": "numpy", "state-backends": "rocksdict", "file-sink": "pyarrow"}
_HEX_LINE = re.compile(r"^\s*((?:[0-9a-f]{2}\s+)*[0-9a-f]{2})(?=\s|$)")


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize("name", _PAGES)
def test_programs_print_what_the_page_says(name: str, tmp_path: Path) -> None:
    """Each program with its output below it, run alone, prints exactly that."""
    if name in _EXTRAS:
        pytest.importorskip(_EXTRAS[name])
    found = list(transcripts.printing_programs(page(name)))

    assert found
    for program, printed in found:
        assert transcripts.run_program(program.text, tmp_path, ROOT) == printed, f"docs/{name}.md:{program.line}"


@pytest.mark.parametrize("name", _TRANSCRIPTS)
def test_transcripts_show_what_happens(name: str, tmp_path: Path) -> None:
    """Commands of a page, in order and in one directory, print the text below them; so do its programs."""
    if name in _EXTRAS:
        pytest.importorskip(_EXTRAS[name])
    for text in ((ROOT / "README.md").read_text("utf-8"), page(name)):
        for file_name, program in transcripts.named_programs(text).items():
            (tmp_path / file_name).write_text(program.replace("/tmp/try", str(tmp_path)), "utf-8")
    found = list(transcripts.commands(page(name)))

    assert found
    for command in found:
        printed = transcripts.run_command(command.text, tmp_path, ROOT)
        assert transcripts.is_shown(command.printed, printed), f"$ {command.text}\n" + "\n".join(printed)
    for block, printed_text in transcripts.printing_programs(page(name)) if name in _LOOKS_BACK else ():
        assert transcripts.run_program(block.text, tmp_path, ROOT) == printed_text, f"docs/{name}.md:{block.line}"


def test_a_program_that_goes_on_prints_what_the_page_says(tmp_path: Path) -> None:
    """The second program of the page about audits takes the job of the first."""
    first, second = transcripts.printing_programs(page("audit"))

    printed = transcripts.run_program(first[0].text + second[0].text, tmp_path, ROOT)
    assert printed == first[1] + second[1]


def _example_files(backend: StateBackend) -> list[bytes]:
    """The files of the example on the page: value state `v` set to "a" under the key 1, key groups 0 to 3 of 4."""
    files = MemoryFileSystem()
    keyed = backend.create_keyed_backend(BackendEnvironment(LONG, 4, KeyGroupRange(0, 3), files, "/work", "u"))
    keyed.set_current_key(1)
    keyed.value_state(ValueStateDescriptor("v")).update("a")
    location, options = CheckpointStorage(files, "/storage", "job").initialize_location(1), SnapshotOptions()
    strategy = keyed.snapshot_strategy(options)
    task = strategy.async_snapshot(strategy.sync_prepare_resources(1), location.stream_factory("task"), options)
    handle = run_to_completion(task).job_manager_state
    assert isinstance(handle, FullKeyedStateHandle | IncrementalKeyedStateHandle)
    found = []
    for stream in handle.streams():
        with location.reader().open(stream) as file:
            found.append(file.read())
    return found


def _shown_bytes(text: str) -> bytes:
    lines = (_HEX_LINE.match(line.partition("    #")[0]) for line in text.splitlines())
    return b"".join(bytes.fromhex(match[1]) for match in lines if match)


@pytest.mark.parametrize(
    ("backend", "count"), [(HeapStateBackend(), 1), (LsmStateBackend(incremental=True), 4)], ids=["full", "lsm"]
)
def test_bytes_on_the_page_are_those_of_the_files(backend: StateBackend, count: int) -> None:
    """Each file of the smallest example stands on the page of formats, byte by byte."""
    shown = {
        _shown_bytes(part)
        for block in transcripts.blocks(page("formats"))
        for part in block.text.split("\n\n")
        if block.language == ""
    }

    files = _example_files(backend)
    assert len(files) == count
    assert [file.hex(" ") for file in files if file not in shown] == []


def test_a_line_that_is_not_printed_is_found() -> None:
    """A transcript is compared line by line; `…` stands for any lines, and for none."""
    assert transcripts.is_shown(["a", "…", "d"], ["a", "b", "c", "d  "])
    assert transcripts.is_shown(["a", "…", "d"], ["a", "d"])
    assert not transcripts.is_shown(["a", "…", "d"], ["a", "b"])
    assert not transcripts.is_shown(["a"], ["a", "b"])
    assert not transcripts.is_shown([], ["a"])
    assert transcripts.is_shown(["one …"], ["one two three"])
    assert not transcripts.is_shown(["one … three"], ["one two three"])
    assert not transcripts.is_shown(["one …"], ["two one"])


def test_what_differs_between_machines_does_not_count() -> None:
    """Only the version of Python, seconds and tokens are left out, not text that looks like them."""
    assert transcripts.is_shown(["weir 0.1.0 (Python 3.11.7): 2 runs"], ["weir 0.1.0 (Python 3.12.0): 2 runs"])
    assert transcripts.is_shown(["2 runs, 1.5 s; seconds=1.4 x=2"], ["2 runs, 12.0 s; seconds=90 x=2"])
    assert transcripts.is_shown(["weir replay weir2.Ab_c-… --times 3"], ["weir replay weir2.XYZ --times 3"])
    assert not transcripts.is_shown(["weir 0.1.0 (Python 3.11.7): 2 runs"], ["weir 0.2.0 (Python 3.11.7): 2 runs"])
    assert not transcripts.is_shown(["in 1.5ms of virtual time, 2 s"], ["in 1.6ms of virtual time, 2 s"])
    assert not transcripts.is_shown(["weir2.Ab… failed"], ["weir2.Ab passed"])
