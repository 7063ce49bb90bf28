"""What operators and logs read back, well framed and malformed inside: an error of ours that says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.elements.errors import StateError
from engine.runtime.task_steps import TaskSteps
from operators.log.consumer_groups import GROUPS_DIRECTORY, committed_offset
from operators.log.topics import _topic_file, partitions_of, write_topic
from operators.log.transaction_log import LogCorruptError
from state_backends.errors import StateSchemaError
from state_backends.filesystem import MemoryFileSystem
from state_backends.framing import seal
from tests.malformed import framed_variants, packed


def restoring(checkpoint_id: int | None) -> Any:
    """An operator that finds nothing where it expects a pair."""

    def initialize_state() -> None:
        _current, _pending = None  # type: ignore[misc]

    context = SimpleNamespace(uid="out", restored_checkpoint_id=lambda: checkpoint_id)
    return SimpleNamespace(context=context, initialize_state=initialize_state)


def test_an_operator_that_stumbles_over_its_state_is_told_apart_from_a_bug() -> None:
    """After a restore the error names operator and checkpoint; without one it is what it is."""
    with pytest.raises(StateError, match="operator 'out' cannot take over its state from checkpoint 7"):
        TaskSteps.initialize(object(), restoring(7))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        TaskSteps.initialize(object(), restoring(None))  # type: ignore[arg-type]


def test_offsets_of_groups_and_topics_are_checked() -> None:
    """Whatever is in the two files beside the records of a log."""
    fs = MemoryFileSystem()
    write_topic(fs, "/log", "t", 2)
    offset = f"/log/{GROUPS_DIRECTORY}/g/t/0"
    fs.make_dirs(f"/log/{GROUPS_DIRECTORY}/g/t")
    with fs.open_write(offset) as file:
        file.write(seal(b"WEIRGRUP", 1, packed([5, 2, 9])))
    assert committed_offset(fs, "/log", "t", 0, "g") == (5, 2, 9)
    for path, read in (
        (_topic_file("/log", "t"), lambda: partitions_of(fs, "/log", "t")),
        (offset, lambda: committed_offset(fs, "/log", "t", 0, "g")),
    ):
        refused = 0
        others = list(framed_variants(fs.read_bytes(path)))
        for data in others:
            fs.delete(path)
            with fs.open_write(path) as file:
                file.write(data)
            try:
                read()
            except (LogCorruptError, StateSchemaError):
                refused += 1
        assert refused > 0.7 * len(others)
