"""The teaching scenarios and the standard scenario: each keeps the promises that it makes, and breaks those it says it
breaks, under crashes at every step of a checkpoint."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from engine.cli.cases import load_subject_and_scenario
from engine.cli.settings import load_job
from engine.explore.cases import Case, Scenario
from engine.explore.run import FinishedCase, Subject, run_case
from engine.faults.fault import parse_fault
from operators.log.connectors.log_sink import LogSink
from operators.log.memory_transaction_log import MemoryTransactionLog

ROOT = Path(__file__).parents[2]
TEACHING = sorted(path.name for path in (ROOT / "examples/teaching").glob("*.py") if path.name != "__init__.py")
FILES = ["examples/standard_scenario.py", *(f"examples/teaching/{name}" for name in TEACHING)]

CRASHES = [
    f"crash:{who}@{phase}:{point}#{number}"
    for number in (1, 2)
    for phase in ("before", "after")
    for who, point in (
        ("*", "snapshot.sync"),
        ("process", "ack.send"),
        ("job manager", "complete.decide"),
        ("process", "notify.send"),
        ("*", "sink.commit"),
    )
]


@cache
def loaded(path: str, *params: str) -> tuple[Subject, Scenario]:
    return load_subject_and_scenario(str(ROOT / path), dict(text.split("=") for text in params))


def in_modes() -> Iterator[tuple[str, str]]:
    for path in FILES:
        for mode in loaded(path)[1].modes:
            yield path, mode


def struck(subject: Subject, case: Case, *faults: str) -> FinishedCase:
    return run_case(subject, replace(case, faults=tuple(parse_fault(text) for text in faults)))


def rows(finished: FinishedCase) -> Counter[str]:
    return Counter(row for partition in finished.committed.values() for row in partition)


def holds(promise: str, expected: Counter[str], found: Counter[str]) -> bool:
    if promise == "exactly-once":
        return found == expected
    return promise == "none" or (promise == "at-least-once" and found >= expected)


@pytest.mark.parametrize(("path", "mode"), list(in_modes()))
def test_a_scenario_keeps_its_promises(path: str, mode: str) -> None:
    """In each of its modes: undisturbed the same rows, and what it promises under crashes and its own faults."""
    subject, scenario = loaded(path)
    expected = rows(run_case(subject, scenario.case(mode)))
    assert expected
    for seed in range(1, 5):
        assert rows(run_case(subject, replace(scenario.case(mode), seed=str(seed)))) == expected

    happened = 0
    for fault in (*CRASHES, *(text for text in scenario.faults if ":" in text)):
        finished = struck(subject, scenario.case(mode), fault)
        happened += len(finished.faults)
        assert finished.outcome == "finished", (fault, finished.violations)
        assert holds(scenario.promises[mode], expected, rows(finished)), fault
        for sink in finished.view.world.sinks.values():
            assert isinstance(sink, LogSink)
            assert isinstance(sink.log, MemoryTransactionLog)
            sink.log.validate()
            assert sink.log.open_transactions() == []
    assert happened >= 15


@pytest.mark.parametrize("path", ["examples/teaching/counting.py", "examples/teaching/windows.py"])
def test_at_least_once_is_no_more_than_that(path: str) -> None:
    """Where a scenario promises less in a mode, there is a run that shows why: one barrier is late, and a crash."""
    subject, scenario = loaded(path)
    slow = {"cost.slow_links.right": 5_000, "cost.source_record_ns": 1_000}
    expected = rows(run_case(subject, scenario.case("aligned", **slow)))
    broken = {"aligned": 0, "at-least-once": 0}
    for mode in broken:
        for at_us in range(1, 16):
            finished = struck(subject, scenario.case(mode, **slow), f"crash:count[*]@{at_us}us")
            broken[mode] += rows(finished) != expected
    assert broken["aligned"] == 0
    assert broken["at-least-once"] > 0


@pytest.mark.parametrize("commit", ["barrier", "never"])
def test_who_does_not_wait_for_completion_publishes_twice(commit: str) -> None:
    """A crash between the barrier and the completion of its checkpoint; with ``completion`` it is harmless."""
    path = "examples/teaching/two_phase_commit.py"
    expected = rows(run_case(*_first_case(path)))
    crash = "crash:process@before:complete.decide#1"
    assert rows(struck(*_first_case(path), crash)) == expected
    assert rows(struck(*_first_case(path, f"commit={commit}"), crash)) > expected


def _first_case(path: str, *params: str) -> tuple[Subject, Case]:
    subject, scenario = loaded(path, *params)
    return subject, scenario.case()


@pytest.mark.parametrize("name", ["in_flight.py", "finishing.py"])
def test_records_in_flight_are_stored_in_their_scenarios(name: str) -> None:
    """The scenario about them has some, in some schedules, and so has the one about the end."""
    subject, scenario = loaded(f"examples/teaching/{name}")
    stored = {"unaligned": 0, "aligned": 0}
    for mode in stored:
        for seed in range(10):
            finished = run_case(subject, replace(scenario.case(mode), seed=str(seed)))
            stored[mode] += sum(row.persisted_bytes > 0 for row in finished.result.checkpoints.rows())
    assert stored["unaligned"] > 0
    assert stored["aligned"] == 0


@pytest.mark.parametrize("path", FILES)
def test_a_docstring_names_commands_that_fit(path: str) -> None:
    """Each file says what to type, with its own name and modes that it has."""
    text = (ROOT / path).read_text().split('"""')[1]
    modes = loaded(path)[1].modes
    commands = [line.strip() for line in text.splitlines() if line.strip().startswith("weir ")]
    assert commands
    for command in commands:
        assert path in command
        words = command.split()
        for option, value in pairwise(words):
            assert option != "--mode" or value in modes, command
            assert option != "--param" or load_job(str(ROOT / path), dict([value.split("=")])), command


@pytest.mark.parametrize("path", FILES)
def test_every_task_has_something_to_do(path: str) -> None:
    """Keys and records are chosen so that no subtask stands idle, or a scenario would show less than it seems to."""
    subject, scenario = loaded(path)
    finished = run_case(subject, scenario.case())
    idle = [task.name for task in finished.view.execution.manager.tasks.values() if not task.records_in]
    assert idle == []


def test_the_standard_scenario_is_the_standard_one() -> None:
    """Two sources, two keyed subtasks, one sink, 80 records, two checkpoints before the last; either sink."""
    subject, scenario = loaded("examples/standard_scenario.py")
    finished = run_case(subject, scenario.case())
    assert [vertex.parallelism for vertex in subject.plan().vertices] == [1, 1, 2, 1]
    assert sum(rows(finished).values()) == 80
    assert len([row for row in finished.result.checkpoints.rows() if row.end_to_end_ns is not None]) == 3
    collected = run_case(loaded("examples/standard_scenario.py", "sink=collect")[0], scenario.case())
    assert rows(collected) == rows(finished)


def test_every_teaching_file_has_a_docstring_that_teaches() -> None:
    """A lesson has a title and some lines; commands alone are none."""
    for path in FILES:
        document = inspect.cleandoc((ROOT / path).read_text().split('"""')[1])
        assert len(document.splitlines()) >= 10, path
