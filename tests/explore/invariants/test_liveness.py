"""V13 to V16, the assertions, and the page about all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.explore.cases import Case
from engine.explore.invariants import CATALOGUE, SOMETIMES, Footprint, invariants_for, self_check, sometimes
from engine.explore.invariants.liveness import EVERY_EVENTS, LONGEST_NS, Assertions
from engine.explore.run import FinishedCase, Subject, World, run_case, trace_digest
from engine.faults.fault import FaultMix, parse_fault
from engine.graph.job import Job
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted, RunEnded, TaskState, TimerFired, TraceEvent
from engine.runtime.channels import Channel
from operators.basic import CollectedResults
from operators.files.sinks import FileSink
from operators.log.connectors.log_sink import LogSink
from operators.sources import CollectionSource, SequenceSource
from tests.explore.invariants.support import carried_out, found, healthy, subject, texts, told, usual

PAGE = Path(__file__).parents[3] / "docs" / "invariants.md"


def ended(outcome: str = "finished", name: str = "counting", **changes: Any) -> FinishedCase:
    """A healthy case that came to this end."""
    finished = healthy(name)
    return FinishedCase(replace(finished.view, **changes), finished.results, {}, [], outcome=outcome)


# --- V13 --------------------------------------------------------------------------------------------------------------


def test_a_job_that_finishes_has_completed_a_checkpoint_since_its_last_attempt() -> None:
    """Without one its last output is not committed; an attempt with no task left to run need not complete one."""
    start, runs = AttemptStarted(1, 1, None), TaskState(2, 1, "count[0]", "running", None)
    for events, wrong in (
        ((start, runs, CheckpointCompleted(3, 1, 1, 0)), False),
        ((start, runs), True),
        ((start,), False),
        ((start, runs, CheckpointCompleted(3, 1, 1, 0), AttemptStarted(4, 2, 1), runs._replace(attempt=2)), True),
    ):
        invariant = told("V13", *events, RunEnded(9, "finished"))
        invariant.finished(ended())
        assert bool(invariant.violations) is wrong, events


def test_the_last_attempt_ends_in_good_time() -> None:
    """The time counts from the start of that attempt."""
    for took_ns, wrong in ((LONGEST_NS // 2, False), (100 * LONGEST_NS, True)):
        invariant = told("V13", AttemptStarted(1, 1, None), RunEnded(1 + took_ns, "finished"))
        invariant.finished(ended())
        assert bool(invariant.violations) is wrong


# --- V14 --------------------------------------------------------------------------------------------------------------


def test_a_finished_job_leaves_nothing() -> None:
    """The healthy case leaves no file or transaction."""
    invariant = told("V14")
    invariant.finished(ended())
    assert texts(invariant) == []


def test_a_file_that_no_checkpoint_refers_to_is_found() -> None:
    """In checkpoint storage each file belongs to a retained checkpoint or to the directory itself."""
    finished = run_case(subject("counting"), usual())
    finished.view.world.checkpoints.make_dirs("/checkpoints/counting/shared")
    finished.view.world.checkpoints.open_write("/checkpoints/counting/shared/orphan").close()
    (invariant,) = invariants_for(only=["V14"])
    invariant.process_started(finished.view)
    invariant.finished(finished)
    assert texts(invariant) == ["files that no checkpoint refers to: /checkpoints/counting/shared/orphan"]


def test_an_open_transaction_is_found() -> None:
    """A transaction with records in it; an empty one does not hide any."""
    sink = LogSink("rows")
    world = World(sinks={"out": sink})
    producer = sink.log.init_transactions("out/0/1.1/0", 10**9, 0)
    sink.log.begin(producer, 0)
    for records, wrong in (((), False), ((1,), True)):
        sink.log.append(producer, "rows", 0, records, 0, 0)
        case = ended(world=world)
        (invariant,) = invariants_for(only=["V14"])
        invariant.process_started(case.view)
        invariant.finished(case)
        assert bool(invariant.violations) is wrong
    assert texts(invariant) == ["open transactions of sink 'out': out/0/1.1/0 (epoch 0)"]


def test_what_a_task_still_holds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that runs, and a channel that is blocked, in a job that says it has finished."""
    tasks = healthy().view.execution.manager.tasks
    task = next(task for task in tasks.values() if task.name == "out[0]")
    monkeypatch.setattr(task.life, "state", "running")
    monkeypatch.setattr(task.inputs[0], "blocked", True)
    invariant = told("V14")
    invariant.finished(ended())
    assert texts(invariant) == ["the job has finished, and out[0] is running", "count[0]->out[0] is still blocked"]


def test_a_timer_behind_the_end_of_data_is_found() -> None:
    """Its records would come after the end of its stream."""
    over, timer = TaskState(1, 1, "count[0]", "end_of_data", None), TimerFired(2, 1, "count[0]", "count", 2)
    assert texts(told("V14", timer, over)) == []
    assert texts(told("V14", over, timer)) == ["a timer of count is called in count[0] after the end of its data"]


def test_an_unfinished_part_of_a_file_sink_is_found() -> None:
    """Readers pass such a file over, and it stays for ever."""
    finished = run_case(subject("windows"), usual())
    directory = next(iter(finished.view.world.file_sinks.values()))
    finished.view.world.files.open_write(f"{directory}/.part-0-9.inprogress.1-1").close()
    (invariant,) = invariants_for(only=["V14"])
    invariant.process_started(finished.view)
    invariant.finished(finished)
    assert "unfinished files of sink" in texts(invariant)[0]


# --- V15 --------------------------------------------------------------------------------------------------------------


def happened(name: str, case: Case) -> dict[str, bool]:
    return sometimes(carried_out(name, case)[1])


def test_only_what_applies_is_expected() -> None:
    """Without faults nothing dies; without checkpoints nothing is expected at all."""
    assert set(happened("counting", usual())) == {"completed", "committed early"}
    assert happened("counting", usual(mode="none")) == {}
    assert {"stored in flight"} < set(happened("counting", usual(mode="unaligned")))
    dying = set(happened("counting", replace(usual(), mix=FaultMix({"crash": 1, "pause": 1}, 2))))
    assert dying == {
        "completed", "committed early", "restored", "aborted", "committed again", "fenced", "died again",
        "job manager died", "second process",
    }


def test_what_the_channels_of_a_job_rule_out_is_not_expected() -> None:
    """Forward edges are not overtaken; one input channel takes nothing from after the barrier before its snapshot."""
    forward, rebalanced = _expected(rebalanced=False, mode="unaligned"), _expected(rebalanced=True, mode="unaligned")
    assert rebalanced - forward == {"stored in flight"}
    assert "counted twice" not in _expected(rebalanced=True, mode="at-least-once")
    assert "counted twice" in happened("counting", usual(mode="at-least-once"))


def _expected(*, rebalanced: bool, mode: str) -> set[str]:
    """Of a job of one source and one sink, with one channel from task to task."""
    made = Job("chain")
    numbers = made.source(SequenceSource(0, 20), name="numbers")
    stream = numbers.rebalance() if rebalanced else numbers
    stream.collect(CollectedResults(), name="out", chain=False)
    invariants = invariants_for(only=["V15"])
    run_case(Subject(lambda _: made, label="chain"), usual(mode=mode), invariants)
    return set(sometimes(invariants))


@pytest.mark.parametrize(
    ("name", "fault", "settings", "happening"),
    [
        ("counting", "crash:count[0]@17us", {}, "restored"),
        ("counting", "crash:count[0]@9us", {}, "aborted"),
        ("counting", "crash:count[0]@17us", {"mode": "unaligned", "cost.record_ns": 2_000}, "restored in flight"),
        ("counting", "crash:process@before:notify.send#1", {}, "committed again"),
        ("logged", "crash:process@before:notify.send#1", {}, "committed again"),
        ("counting", "crash:job manager@17us", {}, "job manager died"),
        ("counting", "crash:process@17us", {}, "second process"),
        ("counting", "pause:count[0]@17us~10us", {"heartbeat_timeout_ns": 5_000}, "fenced"),
        ("logged", "rescale:process@17us=1", {}, "rescaled"),
    ],
)
def test_what_happens_is_noticed(name: str, fault: str, settings: dict[str, Any], happening: str) -> None:
    """It happens with the fault that causes it, and not without."""
    case = usual(**settings)
    assert not happened(name, case).get(happening, False)
    assert happened(name, replace(case, faults=(parse_fault(fault),)))[happening]


def test_a_second_failure_before_the_first_checkpoint_is_noticed() -> None:
    """The attempt that restored dies before it completes one of its own."""
    faults = tuple(map(parse_fault, ("crash:count[0]@17us", "crash:count[1]@20us")))
    assert happened("counting", replace(usual(), faults=faults))["died again"]


def test_at_least_once_counts_twice_sometimes() -> None:
    """A cut with orphans, in the mode that allows them."""
    case = usual(mode="at-least-once", **{"cost.slow_links.numbers[1]": 4_000})
    assert happened("counting", case)["counted twice"]


# --- V16 --------------------------------------------------------------------------------------------------------------


def footprint(case: Case) -> tuple[Footprint, FinishedCase]:
    trace: list[TraceEvent] = []
    finished = run_case(subject("counting"), case, instruments=[trace.append])
    return Footprint.of(finished, trace_digest(trace)), finished


def test_the_same_case_leaves_the_same_footprint() -> None:
    """Also with faults; another seed leaves another one."""
    case = replace(usual(), mix=FaultMix({"crash": 10_000}, 2))
    first, again = footprint(case)[0], footprint(case)[0]
    assert first.differences(again) == ()
    assert any("choices" in text for text in first.differences(footprint(replace(case, seed="other"))[0]))


def test_every_part_of_a_footprint_counts() -> None:
    """End, choices, trace, files and output each make a difference of their own."""
    one, _ = footprint(usual())
    path = next(iter(one.files))
    others = {
        "end": replace(one, outcome="failed"),
        "choices": replace(one, choices=one.choices + 1),
        "trace": replace(one, trace_digest="other"),
        "files": replace(one, files={**one.files, path: "other"}),
        "output": replace(one, committed={**one.committed, "out": ()}),
    }
    for what, other in others.items():
        (text,) = one.differences(other)
        assert text.startswith(what)
    assert "only the first time" in one.differences(replace(one, files={}))[0]


def counted(transform: Callable[[int], int]) -> Subject:
    """Keyed sums of what a function makes of some numbers, in a file."""

    def build(parallelism: int | None) -> Job:
        job = Job("counted", parallelism=2)
        numbers = job.source(CollectionSource(list(range(60)), splits=2)).map(transform)
        numbers.key_by(lambda value: value % 5).reduce(lambda left, right: left + right).sink(FileSink("sums"))
        return job

    return Subject(build)


def test_the_self_check_passes_a_deterministic_job() -> None:
    """Also with a fault."""
    case = replace(usual(), faults=(parse_fault("crash:process@9us"),))
    assert self_check(counted(lambda value: value), case) == ()


def test_values_that_differ_show_in_the_files() -> None:
    """A function that returns another value each time is found by the bytes that the job stores."""
    numbers = iter(range(0, 50_000, 5))
    differences = self_check(counted(lambda value: value + next(numbers)), usual())
    assert any(text.startswith("files: ") and "both times, with other bytes" in text for text in differences)
    assert not any(text.startswith(("choice", "end")) for text in differences)


def test_the_self_check_names_the_first_choice_and_the_first_event_that_differ() -> None:
    """A function that fails only in the first run makes both runs differ."""
    calls = iter((True,))

    def fails_once(value: int) -> int:
        if next(calls, False):
            raise ValueError("no")
        return value

    differences = self_check(counted(fails_once), usual())
    assert any(text.startswith("trace: ") for text in differences)
    assert any(re.match(r"choice \d+: first .+, then .+", text) for text in differences), differences
    assert any(re.match(r"event \d+: first \w+\(.+, then \w+\(", text) for text in differences), differences


# --- assertions -------------------------------------------------------------------------------------------------------


def test_a_machine_in_a_wrong_state_is_found_between_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel forgets to count the elements it has delivered; the violation is reported once, with its place."""

    def broken(channel: Channel) -> None:
        raise AssertionError("counters do not add up")

    monkeypatch.setattr(Channel, "validate", broken)
    finished, _ = carried_out(only=("assertion",))
    assert found(finished, "assertion") == [
        "test_a_machine_in_a_wrong_state_is_found_between_events.<locals>.broken does not hold: counters do not add up"
    ]


def test_assertions_are_asked_every_so_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of some hundred events asks as often as the interval says."""
    asked: list[int] = []
    monkeypatch.setattr(Assertions, "between_events", lambda self: asked.append(self.view.execution.kernel.executed))
    finished, _ = carried_out(only=("assertion",))

    assert asked == list(range(EVERY_EVENTS, finished.events + 1, EVERY_EVENTS))
    assert asked


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_lists_every_invariant_as_it_is() -> None:
    """Name, what must hold, why, and where the rule comes from."""
    listed = PAGE.read_text("utf-8").partition("## What must hold")[2].partition("\n## ")[0]
    entries = " ".join(listed.split()).split(" * ")[1:]
    rows = re.findall(r"\*\*`(\w+)`\*\* (.+?) \*Why:\* (.+?) \*From:\* (.+)\.$", "\n".join(entries), flags=re.MULTILINE)
    assert rows == [(one.name, one.title, one.reason, one.source) for one in CATALOGUE.values()]


def test_the_page_lists_everything_that_must_sometimes_happen() -> None:
    """By name and meaning."""
    rows = dict(re.findall(r"^\| ([a-z ]+) \| ([a-z].+?) \|$", PAGE.read_text("utf-8"), flags=re.MULTILINE))
    assert rows == {name: one.meaning for name, one in SOMETIMES.items()}


def test_every_invariant_says_everything() -> None:
    """V1 to V21 and the assertions, none without its four texts."""
    assert [*CATALOGUE] == [*(f"V{number}" for number in range(1, 22)), "assertion"]
    assert all(one.title and one.reason and one.source for one in CATALOGUE.values())
