"""The scenarios of ``examples/scenarios``: each yields what it says, comes to its area, and is clean when searched."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.coordinator import IgnoredBecause
from engine.cli.cases import load_subject, load_subject_and_scenario
from engine.cli.settings import load_job
from engine.cli.verbs.explore import _promise_beyond, _swarm
from engine.explore.cases import Scenario
from engine.explore.invariants import invariants_for
from engine.explore.invariants.transactions import histories_of
from engine.explore.run import RUNS, FinishedCase, Subject, run_case
from engine.explore.search import CampaignOrder, explore
from engine.explore.search.swarm import draw_case
from engine.observe.trace_events import AttemptStarted, ChannelBlocked, RecordReplayed, ReportIgnored, TimerFired
from operators.log.port.transaction_log import REFUSED_AS_FENCED
from operators.table.partitions.partition_triggers import PartitionTimeTrigger, ProcessTimeTrigger
from operators.time.periodic_watermarks import PeriodicWatermarks
from operators.windows.merging import MergingWindows
from state_backends.changelog.history import LogHistory
from state_backends.files import MemoryFileSystem

ROOT = Path(__file__).parents[3]
NAMES = sorted(path.stem for path in (ROOT / "examples/scenarios").glob("*.py") if path.stem != "__init__")
RUNS_EACH = 120
"""Of a search: with this seed enough for everything to happen that should."""

ROWS = {
    "changelog_load": (75, "('c', 'timer', 24)"),
    "committers": (80, "('b', 20)"),
    "fenced_writers": (54, "('b', 17)"),
    "four_inputs": (200, "('connected', 'b', 2, 6)"),
    "idle_watermarks": (8, "('a', 40, 3, 'watermark')"),
    "merging_sessions": (30, "('times', 'c', 240, 266, '0,8,16')"),
    "pending_partitions": (70, "success-file hour=04"),
    "processing_timers": (48, "('session', 'c', 7)"),
    "record_acking": (90, "('around-again', 29)"),
    "shared_files": (72, "(2, 1, 2, 3, 4)"),
}
"""How many rows there are in all outputs together, and one of them."""


@cache
def loaded(name: str) -> tuple[Subject, Scenario]:
    return load_subject_and_scenario(path_of(name), {})


def path_of(name: str) -> str:
    return str(ROOT / f"examples/scenarios/{name}.py")


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_yields_its_rows(name: str) -> None:
    """Run once as it comes; the rows are those that the plain evaluator or its own function expects."""
    subject, scenario = loaded(name)
    finished = run_case(subject, scenario.case(), invariants_for(_promise_beyond(scenario, scenario.modes)))
    rows = [row for partition in finished.committed.values() for row in partition]
    many, one = ROWS[name]
    assert finished.violations == []
    assert len(rows) == many
    assert one in rows
    reference = subject.reference()
    assert reference.order_dependent is None
    # An announcement by event time holds a checksum of rows, which the runs themselves must say.
    assert [uid for uid, judge in reference.judges.items() if judge == RUNS] == (
        ["timed-partition-committer"] if name == "pending_partitions" else []
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_docstring_names_commands_that_fit(name: str) -> None:
    """Each file says what to type, with its own name, its modes, faults that it allows, and parameters that it has."""
    _, scenario = loaded(name)
    document = ast.get_docstring(ast.parse(Path(path_of(name)).read_text("utf-8")))
    assert document is not None
    commands = [line.strip() for line in document.splitlines() if line.strip().startswith("weir ")]
    assert len(commands) >= 2
    for command in commands:
        assert f"examples/scenarios/{name}.py" in command
        for option, value in pairwise(command.split()):
            assert option != "--mode" or value in scenario.modes, command
            assert option != "--fault" or not scenario.faults or value in scenario.faults, command
            if option == "--param":
                load_job(path_of(name), dict([value.split("=")]))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_search_finds_nothing_and_misses_nothing(name: str) -> None:
    """With default settings no run violates anything, and all that should happen in some run does."""
    _, scenario = loaded(name)
    swarm = replace(_swarm(scenario, (), (), {}), savepoints="none")
    order = CampaignOrder(seed="area", runs=RUNS_EACH, swarm=swarm, promise=_promise_beyond(scenario, swarm.modes))
    report = explore(lambda: load_subject(path_of(name), {}), order)
    assert report.verdict[0] == "valid", report.verdict


# -- that each comes to its area ----------------------------------------------------------------------------------


class Facts:
    """What happens in some runs of a scenario with its own settings, with the faults that a search draws."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self._monkeypatch = monkeypatch
        self._restored = False

    def note(self, owner: type, method: str, name: str, counts: Callable[..., bool]) -> None:
        """Count the calls of a method after which ``counts(self, result, *arguments)`` holds."""
        original = getattr(owner, method)

        def noting(this: Any, *arguments: Any, **named: Any) -> Any:
            result = original(this, *arguments, **named)
            self.counts[name] += counts(this, result, *arguments)
            return result

        self._monkeypatch.setattr(owner, method, noting)

    def run(self, name: str, runs: int, *, until: str | None = None, **settings: Any) -> Facts:
        """So many runs, or fewer: none after the first that counts ``until``."""
        subject, scenario = loaded(name)
        fixed = {name: value for name, value in scenario.config.items() if name != "aligned_timeout_ns"}
        swarm = _swarm(scenario, (), (), {**fixed, **settings})
        for number in range(runs):
            self._add(run_case(subject, draw_case(swarm, subject.measure(), f"facts/{number}"), instruments=[self]))
            if until is not None and self.counts[until]:
                break
        return self

    def _add(self, finished: FinishedCase) -> None:
        for result in finished.results:
            for counters in result.counters.values():
                self.counts.update(counters)
        for _, log in histories_of(finished.view.world):
            self.counts["fenced"] += sum(one.result == REFUSED_AS_FENCED for one in log.history)

    def __call__(self, event: Any) -> None:
        match event:
            case AttemptStarted():
                self._restored = event.restored_checkpoint is not None
            case TimerFired() if self._restored:
                self.counts[f"timer of {event.operator} after a restore"] += 1
            case RecordReplayed():
                self.counts["replay"] += 1
            case ReportIgnored(reason=IgnoredBecause.OLDER_ATTEMPT.name):
                self.counts["ignored"] += 1
            case ChannelBlocked():
                self.counts["blocked"] += 1


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> Facts:
    return Facts(monkeypatch)


def test_timers_fire_after_restores(facts: Facts) -> None:
    """Of the function and of the sessions."""
    counts = facts.run("processing_timers", 12).counts
    assert counts["timer of timer after a restore"] > 5
    assert counts["timer of session after a restore"] > 5


def test_sessions_merge(facts: Facts) -> None:
    """Windows become one, and their contents are moved."""
    facts.note(MergingWindows, "plan", "merge", lambda _, merge, *rest: len(merge.merged) > 1)
    facts.note(MergingWindows, "plan", "move", lambda _, merge, *rest: bool(merge.moved))
    counts = facts.run("merging_sessions", 8).counts
    assert min(counts["merge"], counts["move"]) > 50


def test_splits_are_idle_after_restores(facts: Facts) -> None:
    """Some are restored as idle, beside others that are not; and no record of a healthy run is late."""
    facts.note(
        PeriodicWatermarks,
        "restore_idleness",
        "restored idle",
        lambda _, result, saved, now_ns: len({one.idle for one in saved.values() if one is not None}) > 1,
    )
    counts = facts.run("idle_watermarks", 20).counts
    assert counts["restored idle"] > 2
    assert counts["numLateRecordsDropped"] == 0


def test_partitions_are_pending_after_restores(facts: Facts) -> None:
    """By either clock; and all are committed."""
    facts.note(PartitionTimeTrigger, "restore", "pending by event time", lambda this, *_: bool(this.fingerprint()[0]))
    facts.note(ProcessTimeTrigger, "restore", "pending by the clock", lambda this, *_: bool(this.fingerprint()))
    counts = facts.run("pending_partitions", 12).counts
    assert counts["pending by event time"] > 2
    assert counts["pending by the clock"] > 2


@pytest.mark.parametrize("backend", ["heap", "lsm", "changelog"])
def test_shared_files_are_discarded_while_the_job_runs(facts: Facts, backend: str) -> None:
    """They are under every state backend."""
    facts.note(MemoryFileSystem, "delete", "discarded", lambda _, result, path: "/shared/" in path)
    assert facts.run("shared_files", 4, state_backend=backend).counts["discarded"] > 20


def test_tasks_wait_for_barriers_of_several_inputs(facts: Facts) -> None:
    """Channels are blocked because others have not brought their barrier yet."""
    assert facts.run("four_inputs", 6, mode="aligned").counts["blocked"] > 50


def test_logs_are_cut_while_checkpoints_go_on(facts: Facts) -> None:
    """The changelog is materialised several times in each run, and then cut."""
    facts.note(LogHistory, "materialized", "materialised", lambda *rest: True)
    assert facts.run("changelog_load", 6).counts["materialised"] > 6 * 4


def test_committers_are_asked_again_and_files_compacted(facts: Facts) -> None:
    """Requests are put off, what was committed is asked for again after a restore, and files are put together."""
    counts = facts.run("committers", 16).counts
    assert counts["retriedCommittables"] > 50
    assert counts["alreadyCommittedCommittables"] > 0
    assert counts["numFilesCompacted"] > 50


def test_older_attempts_speak_and_are_not_heard(facts: Facts) -> None:
    """Their messages come to the job manager, and their requests to the log."""
    counts = facts.run("fenced_writers", 400, until="fenced").counts
    assert counts["ignored"] > 1
    assert counts["fenced"] > 0


def test_records_are_sent_again(facts: Facts) -> None:
    """Because nothing was heard of them in time."""
    assert facts.run("record_acking", 20).counts["replay"] > 10
