"""Every example and teaching job: the evaluator and the engine without faults agree.

Where it cannot tell, the reason is named here. And it runs none of the engine's code while it evaluates them.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest

from engine.cli.cases import load_subject
from engine.elements.operator import Operator
from engine.explore.cases import FIFO, Case
from engine.explore.opinion import compare_outputs, second_opinion
from engine.explore.run import Subject, World
from engine.explore.run.references import undisturbed
from examples.sinks import SINKS
from tests.explore.opinion.support import opinion_on
from tests.house.project import ROOT

EXAMPLES = ROOT / "examples"

NO_JOB = {
    "acking_functions.py": "a program; it runs its jobs itself, in mode acking",
    "end_to_end.py": "a program; its sinks are in sinks.py",
    "end_to_end_sinks.py": "part of end_to_end.py",
    "flights.py": "needs the data of a year of flights",
    "flights_data.py": "part of flights.py",
    "flights_lateness.py": "needs the data of a year of flights",
    "flights_on_spark.py": "part of flights.py",
    "flights_oracle.py": "part of flights.py",
    "flights_page.py": "part of flights.py",
    "flights_proof.py": "part of flights.py",
    "flights_run.py": "part of flights.py",
    "flights_side_by_side.py": "part of flights.py",
    "flights_spark.py": "part of flights.py",
    "tables.py": "a program; it runs its jobs itself",
}
"""Files without a job that could be searched, or that are covered elsewhere."""

NOT_EVALUATED = {
    "scenarios/committers.py": {"documents": "Documents"},
    "scenarios/pending_partitions.py": {
        "clocked-partition-committer": "PartitionCommitterSpec",
        "timed-partition-committer": "PartitionCommitterSpec",
    },
    "scenarios/processing_timers.py": {"out": "the virtual clock"},
    "partition_commit.py": {"table-partition-committer": "PartitionCommitterSpec"},
    "sinks.py sink=delta": {"out": "MemoryDeltaSink"},
    "sinks.py sink=foreach-batch": {"out": "BatchesById"},
    "sinks.py sink=partitions": {"out-partition-committer": "PartitionCommitterSpec"},
    "sinks.py sink=partitions-compacted": {"out-partition-committer": "CompactCoordinatorSpec"},
    "sinks.py sink=table-avro-compacted": {"out-partition-committer": "CompactCoordinatorSpec"},
    "sinks.py sink=table-raw": {"out-partition-committer": "PartitionCommitterSpec"},
    "sinks.py sink=partition-time": {"out-partition-committer": "PartitionCommitterSpec"},
    "sinks.py sink=partition-time-compacted": {"out-partition-committer": "CompactCoordinatorSpec"},
}
"""By job: the sinks of which the evaluator cannot tell, and what is to blame."""


def _files() -> list[str]:
    found = [str(path.relative_to(EXAMPLES)) for path in sorted(EXAMPLES.rglob("*.py"))]
    # Lessons about tuning are programs: they make their jobs and run them themselves.
    is_program = re.compile(r"tuning/|.*__init__\.py").match
    return [name for name in found if not is_program(name) and name not in NO_JOB]


def _cases() -> list[tuple[str, dict[str, str]]]:
    cases: list[tuple[str, dict[str, str]]] = [(name, {}) for name in _files() if name != "sinks.py"]
    cases += [("sinks.py", {"sink": name}) for name in SINKS]
    return [*cases, ("teaching/two_phase_commit.py", {"commit": "barrier"})]


def _name(case: tuple[str, dict[str, str]]) -> str:
    return " ".join([case[0], *(f"{name}={value}" for name, value in case[1].items())])


def _subject(case: tuple[str, dict[str, str]]) -> Subject:
    name, params = case
    return load_subject(str(EXAMPLES / name), params)


@pytest.mark.parametrize("case", _cases(), ids=_name)
def test_the_evaluator_agrees_with_the_engine(case: tuple[str, dict[str, str]]) -> None:
    """Sink by sink, the rows are the same; of some sinks it cannot tell, for a reason."""
    subject = _subject(case)
    opinion = opinion_on(subject, parallelisms=(None, 3) if subject.is_scalable else (None,))
    assert opinion.dependent is None
    expected = NOT_EVALUATED.get(_name(case), {})
    assert sorted(opinion.unknown) == sorted(expected)
    for uid, reason in expected.items():
        assert reason in opinion.unknown[uid]
    done = undisturbed(subject, Case(scheduler=FIFO)).committed
    known = {name: rows for name, rows in done.items() if name.partition("/")[0] not in opinion.unknown}
    compared = compare_outputs(opinion.endings[0], known)
    assert compared.equal, compared.describe()
    assert compared.rows_expected or opinion.unknown


# -- none of the engine's code --------------------------------------------------------------------------------------

FORBIDDEN_PLACES = (
    "engine/runtime/", "engine/checkpoint/", "engine/protocols/", "engine/faults/",
    "operators/windows/window_operator.py", "operators/windows/triggered_windows.py", "operators/windows/cells.py",
    "operators/windows/contents.py", "operators/windows/contexts.py", "operators/windows/merging.py",
    "operators/basic/keyed", "operators/basic/co_process.py", "operators/basic/broadcast_process.py",
    "operators/basic/stateless.py", "operators/joins/", "operators/patterns/", "operators/transactions/",
    "operators/time/event_clock.py", "operators/time/periodic_watermarks.py", "operators/time/watermark_generators.py",
    "operators/ranking/deduplication.py",
    "state_backends/heap/", "state_backends/api/", "state_backends/store/", "state_backends/ttl/",
    "state_backends/lsm/", "state_backends/changelog/",
)  # fmt: skip


def _code_of_operators() -> set[CodeType]:
    """The functions of every class of operators that is loaded."""
    kinds, waiting = set(), [Operator]
    while waiting:
        kind = waiting.pop()
        kinds.add(kind)
        waiting += [one for one in kind.__subclasses__() if one not in kinds]
    return {function.__code__ for kind in kinds for function in vars(kind).values() if inspect.isfunction(function)}


class _Calls:
    """Which code is called, by place and name, that must not be."""

    def __init__(self) -> None:
        self.wrong: dict[str, None] = {}
        self.calls = 0
        self._operators = _code_of_operators()
        self._roots = tuple(f"{root}{os.sep}" for root in (ROOT, Path(sys.prefix) / "packages"))

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        self.calls += 1
        code = frame.f_code
        for root in self._roots:
            place = code.co_filename.removeprefix(root)
            if code in self._operators or (place != code.co_filename and place.startswith(FORBIDDEN_PLACES)):
                self.wrong[f"{place}: {code.co_qualname}"] = None


def watched(subject: Subject) -> _Calls:
    """Every call while the opinion on a job is made. (To make the job, and its sinks, is another matter.)"""
    world = World()
    plan = subject.in_world(subject.plan(), world)
    calls = _Calls()
    before = sys.getprofile()
    sys.setprofile(calls)
    try:
        second_opinion([plan], world.files, [*world.sinks, *world.file_outputs, *world.announcers])
    finally:
        sys.setprofile(before)
    return calls


WATCHED = [case for case in _cases() if "commit" not in case[1]]


@pytest.mark.parametrize("case", WATCHED, ids=_name)
def test_no_code_of_an_operator_runs(case: tuple[str, dict[str, str]]) -> None:
    """No window, timer, join, state, pattern, sink, task or checkpoint of the engine has a part in the opinion."""
    calls = watched(_subject(case))
    assert calls.calls > 100
    assert not calls.wrong, list(calls.wrong)


def test_the_watch_notices_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that calls the operator's own code would be seen."""
    keyed: ModuleType = importlib.import_module("operators.basic.keyed")
    functions: ModuleType = importlib.import_module("engine.explore.opinion.function_steps")
    on_record = functions.Reduce.on_record

    def cheating(self: Any, record: Any, which: int) -> None:
        keyed.ReduceOperator(self.spec.given["fn"])
        on_record(self, record, which)

    monkeypatch.setattr(functions.Reduce, "on_record", cheating)
    assert "operators/basic/keyed.py: ReduceOperator.__init__" in watched(_subject(("standard_scenario.py", {}))).wrong
