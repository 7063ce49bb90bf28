"""A recording is of the run as it is, and its data lead forward and back."""

from __future__ import annotations

from collections import ChainMap
from pathlib import Path
from typing import Any

import pytest

from engine import CollectionSource, FileSink, FileSource, Job, TextFormat
from engine.explore.run import Subject
from engine.observe.trace_events import AttemptStarted
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import Execution
from engine.view import Recorder, changing_cells
from engine.view.chapters import chapters_of
from engine.view.page_data import IN_FLIGHT, LOST, NORMAL, ORPHAN
from engine.view.readings import KeyedTexts, Reading, cells_of, channels_of, pressure_of, queue_of, state_of
from operators.basic import CollectedResults, CollectSink, ListCheckpointed
from operators.log.connectors import LogSink
from operators.sources import FunctionSource, SourceFunction, SourceFunctionContext
from tests.view.recorded import data_of, plain_digest, recorded, wide

CRASH = "crash:count[0]@after:ack.send#2"


@pytest.mark.parametrize("mode", ["aligned", "at-least-once", "unaligned"])
def test_a_recorded_run_is_the_same_run(mode: str) -> None:
    """A run with a recorder has the trace digest of one without."""
    assert recorded(mode=mode)[1] == plain_digest(mode)


def test_cells_lead_forward_and_back() -> None:
    """Each change of a cell begins with the text that the last one has left, so steps can be undone."""
    data = data_of(recorded(None, CRASH)[0])
    texts: dict[int, str | None] = {}

    for step in data["steps"]:
        for cell, before, after in step["c"]:
            assert texts.get(cell) == before, data["cells"][cell]
            texts[cell] = after

    assert {data["cells"][cell][0] for cell in texts} >= {"state", "position", "transaction", "queue", "reader"}


def test_every_action_is_in_one_step() -> None:
    """The steps divide the actions: none is left out, none is in two steps."""
    data = data_of(recorded(None, CRASH)[0])

    rows = [row for step in data["steps"] for row in range(*step["r"])]
    assert rows == list(range(len(data["actions"])))


def _counted(data: dict[str, Any]) -> dict[str, str]:
    """The keyed state after the last step at which there was any."""
    state: dict[str, str] = {}
    found: dict[str, str] = {}
    for step in data["steps"]:
        for cell, _, after in step["c"]:
            kind, _, name = data["cells"][cell]
            if kind == "state":
                state.pop(name, None)
                if after is not None:
                    state[name] = after
                    found = dict(state)
    return found


@pytest.mark.parametrize("backend", ["heap", "lsm", "changelog"])
def test_state_by_key(backend: str) -> None:
    """The state of each key is shown as it was, on every backend: two records of each key were counted."""
    found = _counted(data_of(recorded(state_backend=backend)[0]))

    assert sorted(found.values()) == ["('a', 2)", "('b', 2)"]


def test_the_cut_goes_through_every_task() -> None:
    """A completed checkpoint has a point of its cut in each lane, at the row of the snapshot."""
    data = data_of(recorded()[0])

    cut = data["cuts"][0]
    assert cut["state"] == "completed"
    assert [lane for lane, _ in cut["at"]] == list(range(len(data["lanes"])))
    for lane, row in cut["at"]:
        _, who, _, text, _ = data["actions"][row]
        assert (who, text) == (lane, f"takes its snapshot of checkpoint {cut['id']}")


def test_an_orphan_is_marked() -> None:
    """At least once, a record that overtakes the other barrier is an orphan of that checkpoint; aligned, none is."""
    late, orphans = CostModel(slow_links={"right[0]": 9_000}), {}
    for mode in ("aligned", "at-least-once"):
        data = data_of(recorded(mode=mode, cost=late)[0])
        marked = [arrow for arrow in data["arrows"] if arrow[6] == ORPHAN]
        assert len(marked) == sum(cut["orphans"] for cut in data["cuts"])
        orphans[mode] = len(marked)

    assert orphans["aligned"] == 0 < orphans["at-least-once"]


def test_a_record_in_flight_is_marked() -> None:
    """A barrier that overtakes a record leaves it to the checkpoint: its arrow crosses the cut that stores it."""
    data = data_of(recorded(mode="unaligned", cost=CostModel(slow_links={"right[0]": 9_000}))[0])

    crossing = [arrow[7] for arrow in data["arrows"] if arrow[6] == IN_FLIGHT]
    assert crossing == [cut["id"] for cut in data["cuts"] for _ in range(cut["captured"])] == [1, 2]


def test_the_story_of_a_crash() -> None:
    """At least once it leads over the first orphan and the record that is read again; aligned, over a blocked channel,
    and nothing counts twice. A run without a crash has no story."""
    cost, told = CostModel(slow_links={"right[0]": 9_000}), {}
    for mode in ("at-least-once", "aligned"):
        data = data_of(recorded(None, "crash:count[0]@11us", mode=mode, cost=cost)[0])
        told[mode] = chapters_of(data)
        assert [row for _, row in told[mode]] == sorted(row for _, row in told[mode])

    assert "".join(text[0] for text, _ in told["at-least-once"][:-1]) == "▷◎◆✕↻"
    assert "(in all: 1 at count)" in told["at-least-once"][1][0]
    assert told["at-least-once"][-1][0].endswith("so they count twice")
    assert "".join(text[0] for text, _ in told["aligned"][:-1]) == "▷▨◆✕↻"
    assert told["aligned"][-1][0].endswith("reads records again")
    assert chapters_of(data_of(recorded()[0])) == []


def test_what_was_never_taken() -> None:
    """A record that was under way when the job died ends in the air; all others are taken."""
    fates = [arrow[6] for arrow in data_of(recorded(None, "crash:count[0]@after:barrier.receive#1")[0])["arrows"]]

    assert LOST in fates
    assert fates.count(NORMAL) > fates.count(LOST)


def test_the_command_that_crashes_here() -> None:
    """The fault of a step makes the run die where the step ended: what came before is the same."""
    before = data_of(recorded()[0])
    step = next(number for number, one in enumerate(before["steps"]) if one["x"] and "barrier.receive" in one["x"])

    after = data_of(recorded(None, before["steps"][step]["x"])[0])

    died = next(number for number, row in enumerate(after["actions"]) if row[4])
    assert after["actions"][: died - 2] == before["actions"][: died - 2]
    assert died >= before["steps"][step]["r"][0]


def test_a_long_run_keeps_the_failure() -> None:
    """Of a long run the time around the first failure is kept, and what is left out is counted."""
    job = Job("long", max_parallelism=8)
    numbers = job.source(CollectionSource(list(range(120))), name="numbers")
    numbers.key_by(lambda one: one % 3).reduce(max, name="most").sink(LogSink("most"), name="out", chain=False)
    recorder, _ = recorded(job, "crash:most[0]@before:snapshot.sync#20", most=120)

    data = data_of(recorder)

    assert data["leftOut"][0] > 0
    assert data["leftOut"][1] > 0
    assert any(row[4] for row in data["actions"])
    assert len(recorder.witness.entries) < 400
    texts = dict(data["before"])
    for one in data["steps"]:
        for cell, old, new in one["c"]:
            if data["cells"][cell][0] != "reader":
                assert texts.get(cell) == old, data["cells"][cell]
                texts[cell] = new
                if new is None:
                    del texts[cell]


def test_a_job_without_records() -> None:
    """A job that reads nothing has a page, too."""
    job = Job("empty", max_parallelism=8)
    job.source(CollectionSource([]), name="nothing").sink(LogSink("out"), name="out")

    data = data_of(recorded(job)[0])

    assert not [row for row in data["actions"] if row[2] == "record"]
    assert data["series"]["read"] == [0] * len(data["series"]["read"])


class _CountsToThree(SourceFunction, ListCheckpointed):
    def __init__(self) -> None:
        self.read_so_far = 0

    def read(self, max_records: int, ctx: SourceFunctionContext) -> list[int] | None:
        self.read_so_far += 1
        return None if self.read_so_far > 3 else [self.read_so_far]


@pytest.mark.parametrize("kind", ["function", "files"])
def test_sources_with_an_operator_of_their_own(kind: str, tmp_path: Path) -> None:
    """A source that is a function, or whose splits are handed out while it reads, can be recorded with its end."""
    (tmp_path / "numbers").write_text("1\n2\n3\n")
    files = FileSource(str(tmp_path), TextFormat(), assignment="pull")
    job = Job("own", max_parallelism=8)
    numbers = job.source(FunctionSource(_CountsToThree) if kind == "function" else files, name="numbers")
    numbers.sink(LogSink("out"), name="out", chain=False)

    data = data_of(recorded(job)[0])

    assert [row[3] for row in data["actions"] if row[3].startswith("sends ") and "barrier" not in row[3]] == [
        f"sends {one} to out[0]" for one in ((1, 2, 3) if kind == "function" else ("'1'", "'2'", "'3'"))
    ]
    shown = [after for step in data["steps"] for cell, _, after in step["c"] if data["cells"][cell][0] == "position"]
    assert shown == ["read to its end"] if kind == "function" else [text and text[:3] for text in shown] == [
        "(0,", "(2,", "(4,", "(6,", None
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (CollectSink(CollectedResults()), {"open": "1 record", "for checkpoint 1": "1 record"}),
        (FileSink("rows", bucket=str), {"1: open": "2 B", "1: for checkpoint 1": "1 closed"}),
    ],
    ids=["collect", "files"],
)
def test_what_readers_do_not_see_yet(sink: Any, expected: dict[str, str], tmp_path: Path) -> None:
    """Rows that wait for a checkpoint are told in words, and not as the sink keeps them."""
    job = Job("waiting", max_parallelism=8)
    job.source(CollectionSource([1, 2, 3]), name="numbers").sink(sink, name="out", chain=False)
    recorder = Recorder(Subject(lambda _: job, label="waiting"))
    plan = recorder.of_run(job.plan(), str(tmp_path))
    config = RunConfig(batch_size=1, checkpoint_interval=CheckpointInterval.parse("1rec"))
    recorder.run(Execution(plan, config, output_dir=str(tmp_path), instruments=[recorder.observe]))

    data = data_of(recorder)

    told = {
        data["cells"][cell][2]: after
        for step in data["steps"] for cell, _, after in step["c"]
        if data["cells"][cell][0] == "transaction" and after is not None
    }  # fmt: skip
    assert expected.items() <= told.items(), told


def test_state_is_told_anew_where_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that changes one key of many puts one key into words, not all of them."""
    original, told = KeyedTexts._texts, []
    monkeypatch.setattr(KeyedTexts, "_texts", lambda *one: told.append(1) or original(*one))
    job = Job("keys", max_parallelism=128)
    numbers = job.source(CollectionSource(list(range(60))), name="numbers")
    numbers.key_by(lambda one: one % 30).reduce(max, name="most").sink(LogSink("out"), name="out", chain=False)

    recorded(job)

    assert 30 <= len(told) < 2 * 60


def _everything(recorder: Recorder) -> dict[Reading, str]:
    """All cells of the running job, read at once."""
    tasks = recorder.execution.manager.tasks.values()
    of_tasks = [one for task in tasks for one in (pressure_of(task), cells_of(task), state_of(task, {}))]
    of_channels = [queue_of(channel) for channel in channels_of(tasks).values()]
    return dict(ChainMap({}, *of_tasks, *of_channels))


class _Doubter(Recorder):
    """Looks at everything after each step, and compares it with what its samples come to."""

    texts: dict[Reading, str]
    seen: int

    def between_events(self) -> None:
        super().between_events()
        for sample in self.samples[self.seen :]:
            for cell, _, text in sample.changes:
                self.texts.pop(cell, None)
                if text is not None:
                    self.texts[cell] = text
        self.seen = len(self.samples)
        assert self.texts == _everything(self)


@pytest.mark.parametrize(
    ("mode", "faults", "settings"),
    [
        ("aligned", ["crash:count[0]@after:ack.send#2"], {"channel_capacity": 1}),
        ("unaligned", ["crash:left[0]@before:snapshot.sync#2"], {"channel_capacity": 1, "failover": "region"}),
        ("at-least-once", ["crash:worker[0]@4us"], {"cost": CostModel(link_latency_ns=900)}),
        ("aligned", ["crash:job manager@before:complete.decide#1"], {}),
    ],
)
def test_no_change_is_missed(
    monkeypatch: pytest.MonkeyPatch, mode: str, faults: list[str], settings: dict[str, Any]
) -> None:
    """After each step the recorder knows every cell of the job, although it reads only where something has happened."""
    monkeypatch.setattr(_Doubter, "texts", {}, raising=False)
    monkeypatch.setattr(_Doubter, "seen", 0, raising=False)
    monkeypatch.setattr("tests.view.recorded.Recorder", _Doubter)

    recorder, _ = recorded(None, *faults, mode=mode, **settings)

    assert recorder.samples
    assert any(isinstance(entry, AttemptStarted) and entry.attempt > 1 for entry in recorder.witness.entries)


@pytest.mark.parametrize("read", ["queue_of", "cells_of"])
def test_a_step_costs_what_it_changes(monkeypatch: pytest.MonkeyPatch, read: str) -> None:
    """Twice as many subtasks are read twice as often, and not four times: a step reads what has changed, whatever the
    size of the job."""
    original, count = getattr(changing_cells, read), []
    monkeypatch.setattr(changing_cells, read, lambda one: count.append(1) or original(one))
    reads = []
    for parallelism in (10, 20):
        count.clear()
        recorded(wide(parallelism))
        reads.append(len(count))

    assert reads[1] < 2.3 * reads[0]
