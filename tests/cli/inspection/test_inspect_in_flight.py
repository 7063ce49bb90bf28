"""`weir inspect` shows the records in flight that an unaligned checkpoint holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import CheckpointInterval, CollectedResults, CollectSink, CostModel, Job, RunConfig, SequenceSource
from engine.checkpoint.restore import NoRestart
from engine.runtime.execution import Execution
from state_backends.files import LocalFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.cli.conftest import Weir

RECORDS = 400


def stopped(directory: Path, mode: str) -> None:
    """A job whose sums are slower than its sources dies; its newest checkpoint was taken under backpressure."""
    job = Job("sums", parallelism=2, max_parallelism=12)
    numbers = job.source(SequenceSource(0, RECORDS, splits=2), name="numbers")
    keyed = numbers.map(lambda number: (number % 20, number), name="pair").key_by(lambda pair: pair[0])
    keyed.reduce(lambda a, b: (a[0], a[1] + b[1]), name="sum").sink(CollectSink(CollectedResults()), name="out")
    config = RunConfig(
        mode=mode, batch_size=10, channel_capacity=40, output_capacity=20, restart=NoRestart(),
        checkpoint_interval=CheckpointInterval.parse("400us"), cost=CostModel(record_ns=5_000),
    )  # fmt: skip
    storage = CheckpointStorage(LocalFileSystem(), str(directory), "sums")
    execution = Execution(job.plan(), config, storage=storage)
    execution.kill("sum[1]", 1_000_000)
    assert execution.run().state == "failed"


@pytest.fixture
def unaligned(weir: Weir) -> Weir:
    """The command line in a directory with such a checkpoint in `state`."""
    stopped(weir.directory / "state", "unaligned")
    return weir


def channels(inspected: Any, uid: str, side: str) -> list[Any]:
    """The channels on one side of all subtasks of an operator."""
    operator = next(one for one in inspected["operators"] if one["uid"] == uid)
    found = [one["in_flight"][side] for one in operator["subtasks"]]
    return [channel for one in found if one is not None for channel in one["channels"]]


def test_json_holds_every_record_in_flight_once(unaligned: Weir) -> None:
    """Each record that the sources have read is in the sums or in flight, on the input or on the output side."""
    inspected = unaligned("inspect", "state", "--json", "--limit", "100").json()
    splits, sums = (next(one for one in inspected["operators"] if one["uid"] == uid) for uid in ("numbers", "sum"))
    read: list[int] = []
    for subtask in splits["subtasks"]:
        state = next(one for one in subtask["operator"]["states"] if one["name"] == "splits")
        for name, position, *_ in (one["$tuple"] for one in state["shown"]):
            first = RECORDS // 2 * int(name.split("-")[1])
            read += range(first, position)
    into, out_of = channels(inspected, "sum", "input"), channels(inspected, "numbers", "output")
    in_flight = [record["value"]["$tuple"][1] for channel in into + out_of for record in channel["records"]]
    summed = sum(
        entry["value"]["$tuple"][1] for subtask in sums["subtasks"] for entry in subtask["keyed"]["states"][0]["shown"]
    )

    assert into
    assert out_of
    assert inspected["in_flight"]["records"] == len(in_flight) == len(set(in_flight)) > 40
    assert summed + sum(in_flight) == sum(read)


def test_a_record_in_flight_is_shown_with_its_channel_and_key(unaligned: Weir) -> None:
    """JSON is complete under any limit; a record has the key under which it will be processed."""
    inspected = unaligned("inspect", "state", "--json", "--limit", "0").json()
    for channel in channels(inspected, "sum", "input"):
        assert channel["edge"] == "pair>>sum#0"
        assert {channel["sender"], channel["receiver"]} <= {0, 1}
        assert all(record["key"] == record["value"]["$tuple"][0] for record in channel["records"])


def test_text_shows_some_records_of_each_channel_and_counts_the_rest(unaligned: Weir) -> None:
    """Both sides, up to the limit."""
    text = unaligned("inspect", "state", "--limit", "2").stdout
    channel = channels(unaligned("inspect", "state", "--json").json(), "sum", "input")[0]
    first = channel["records"][0]["value"]["$tuple"]
    lines = text.splitlines()
    title = f"      pair[{channel['sender']}] -> sum[{channel['receiver']}]: {len(channel['records'])} records"

    assert "records in flight into this subtask (input)" in text
    assert "records in flight out of this subtask (output)" in text
    at = lines.index(title)
    assert lines[at + 1] == f"        {tuple(first)} under key {first[0]}"
    assert lines[at + 3] == f"        … {len(channel['records']) - 2} more records; --limit shows them"


def test_an_aligned_checkpoint_has_nothing_in_flight(weir: Weir) -> None:
    """JSON says so, and text does not speak of it."""
    stopped(weir.directory / "state", "aligned")

    assert weir("inspect", "state", "--json").json()["in_flight"] == {"records": 0, "bytes": 0}
    assert "in flight" not in weir("inspect", "state").stdout


def test_a_long_value_is_cut_in_text(weir: Weir) -> None:
    """A line stays readable; JSON has the value whole."""
    (weir.directory / "long.py").write_text(
        "from engine import CollectionSource, FileSink, Job\n"
        "def job():\n"
        "    job = Job('long')\n"
        "    stream = job.source(CollectionSource(['x' * 1000])).key_by(lambda value: 1)\n"
        "    stream.reduce(lambda a, b: a, uid='keep').sink(FileSink('rows'))\n"
        "    return job\n"
    )
    weir("run", "long.py", "--storage", "state")
    text = weir("inspect", "state", "--operator", "keep").stdout

    assert "xxx… (1,002 characters; --json has all)" in text
    assert max(map(len, text.splitlines())) < 300
