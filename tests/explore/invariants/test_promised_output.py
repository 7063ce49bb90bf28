"""V1 and V2: the output, at the end and on the way there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError
from engine.explore.cases import Case
from engine.explore.invariants import PromisedOutput, invariants_for
from engine.explore.invariants.promised_output import FailureTransparency
from engine.explore.run import FinishedCase, Reference, Subject, run_case
from engine.faults.fault import parse_fault
from engine.graph.job import Job
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted
from operators.basic import CollectedResults
from operators.basic.simple_sinks import _TransactionalCollect
from operators.sources import SequenceSource
from tests.explore.invariants.support import USUAL, carried_out, found, healthy, texts, usual

EXPECTED = ["(0, 1)", "(0, 2)", "(1, 1)"]


class Known:
    """A subject whose reference is known."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    def reference(self, dropped: object = None) -> Reference:
        return self._reference


def judged(
    rows: list[str], promise: str | None, *, order_dependent: str | None = None, row_key: Any = None
) -> PromisedOutput:
    """V1 on this output of a job whose reference is ``EXPECTED``."""
    finished = healthy()
    view = replace(finished.view, subject=Known(Reference({"out": EXPECTED}, order_dependent)))  # type: ignore[arg-type]
    (invariant,) = invariants_for(promise, only=["V1"], row_key=row_key)
    invariant.process_started(view)
    ended = FinishedCase(view, finished.results, {"out": rows}, [], outcome="finished")
    invariant.finished(ended)
    assert isinstance(invariant, PromisedOutput)
    return invariant


LOST, TWICE, STRANGE = EXPECTED[:2], [*EXPECTED, "(1, 1)"], [*EXPECTED, "(9, 9)"]


@pytest.mark.parametrize(
    ("rows", "exactly", "at_least", "at_most"),
    [
        (EXPECTED, True, True, True),
        (EXPECTED[::-1], True, True, True),
        (LOST, False, False, True),
        (TWICE, False, True, False),
        (STRANGE, False, True, False),
        (["(0, 1)", "(0, 3)", "(1, 1)"], False, True, False),
        (["(0, 3)", "(1, 1)"], False, False, False),
        ([*LOST, "(0, 1)"], False, False, False),
    ],
)
def test_output_is_judged_by_its_promise(rows: list[str], exactly: bool, at_least: bool, at_most: bool) -> None:
    """Exactly-once compares multisets, at-least-once allows more, at-most-once fewer."""
    verdicts = [not judged(rows, promise).violations for promise in ("exactly-once", "at-least-once", "at-most-once")]
    assert verdicts == [exactly, at_least, at_most]
    assert not judged(rows, "none").violations


def test_a_difference_names_rows_and_numbers() -> None:
    """The text names missing and surplus rows."""
    (text,) = texts(judged(TWICE, "exactly-once"))
    assert text == (
        "output 'out' is not exactly-once: 0 lost, 1 duplicated, 0 unexpected; (1, 1) expected 1x, found 2x"
    )


def test_a_job_that_depends_on_order_is_not_judged() -> None:
    """Without one reference there is nothing to compare with, and the reason is given."""
    invariant = judged(STRANGE, "exactly-once", order_dependent="rows differ")
    assert (invariant.violations, invariant.skipped) == ([], "the job depends on the order of records: rows differ")


def test_the_order_of_the_rows_of_a_key_counts_when_asked_for() -> None:
    """Rows of one key must come as in the reference; rows of different keys may come as they like."""
    assert judged(["(0, 2)", "(0, 1)", "(1, 1)"], "exactly-once").violations == []
    assert judged(["(1, 1)", "(0, 1)", "(0, 2)"], "exactly-once", row_key=lambda row: row[1]).violations == []
    (text,) = texts(judged(["(0, 2)", "(0, 1)", "(1, 1)"], "exactly-once", row_key=lambda row: row[1]))
    assert "rows of key 0 come in another order: number 1 is (0, 2), and (0, 1) in the reference" in text


def test_a_sink_that_takes_nothing_back_keeps_less_than_its_mode_promises() -> None:
    """By itself such output is judged as at-least-once; a test that asks for exactly-once gets the duplicates."""
    case = replace(usual(), faults=(parse_fault("crash:count[0]@22us"),))
    finished, _ = carried_out("plain", case)
    assert finished.violations == []
    finished, _ = carried_out("plain", case, promise="exactly-once")
    assert found(finished, "V1")[0].startswith("output 'out' is not exactly-once: 0 lost")


def test_at_least_once_state_fails_the_promise_of_exactly_once() -> None:
    """A restore from a cut with orphans counts records twice: allowed by its mode, caught by exactly-once."""
    caught = 0
    for seed in range(12):
        faults = (parse_fault(f"crash:count[1]@{17 + seed}us"),)
        case = replace(usual(str(seed), mode="at-least-once", **{"cost.slow_links.numbers[1]": 4_000}), faults=faults)
        assert carried_out(case=case)[0].violations == []
        caught += bool(found(carried_out(case=case, promise="exactly-once")[0], "V1"))
    assert caught


def test_there_is_no_such_promise() -> None:
    """An unknown promise is refused by name."""
    with pytest.raises(ConfigurationError, match="there is no promise 'exactly'; there are: exactly-once"):
        invariants_for("exactly")


def test_there_is_no_such_invariant() -> None:
    """So is an invariant."""
    with pytest.raises(ConfigurationError, match="there is no invariant V99"):
        invariants_for(only=["V99"])


# --- V2 ---------------------------------------------------------------------------------------------------------------


class Readers:
    """A world that shows the given rows."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.sinks: dict[str, object] = {}
        self.announcers: dict[str, object] = {}
        self.file_outputs: dict[str, object] = {"out": object()}
        self.durable: list[str] = []

    def committed(self) -> dict[str, list[str]]:
        return {"out": self.rows}

    def durable_in_files(self) -> dict[str, list[str]]:
        """The rows that survive every power cut."""
        return {"out": self.durable}


def watched() -> tuple[FailureTransparency, Readers]:
    """V2 in front of readers, of a job whose reference is ``EXPECTED``."""
    world = Readers()
    reference = Reference({"out": EXPECTED})
    view = replace(healthy().view, subject=Known(reference), world=world)  # type: ignore[arg-type]
    (invariant,) = invariants_for(only=["V2"])
    assert isinstance(invariant, FailureTransparency)
    invariant.process_started(view)
    return invariant, world


def see(invariant: FailureTransparency, world: Readers, rows: list[str], event: Any = None) -> list[str]:
    world.rows = rows
    happened = CheckpointCompleted(1, 1, 1, 0) if event is None else event
    invariant.handlers()[type(happened)](happened)
    return texts(invariant)


def test_readers_see_more_and_more_of_the_reference() -> None:
    """Growing output is fine."""
    invariant, world = watched()
    for count in range(4):
        assert see(invariant, world, EXPECTED[:count]) == []


def test_a_row_that_no_run_without_faults_commits_is_seen_at_once() -> None:
    """Even if the row were gone at the end."""
    invariant, world = watched()
    (text,) = see(invariant, world, ["(0, 1)", "(0, 1)"])
    assert text == "output 'out': readers see rows that no run without faults commits, or too often: (0, 1)"


def test_rows_must_not_be_taken_back() -> None:
    """Rows that readers have seen stay."""
    invariant, world = watched()
    see(invariant, world, EXPECTED[:2])
    (text,) = see(invariant, world, EXPECTED[:1])
    assert text == "output 'out': rows that readers have seen are gone: (0, 2)"


@pytest.mark.parametrize("left", [3, 2, 1])
def test_a_power_cut_may_take_what_was_not_durable_yet(left: int) -> None:
    """Of three rows that were seen two were durable: one may be gone, until it comes back."""
    invariant, world = watched()
    see(invariant, world, EXPECTED[:3])
    world.durable = EXPECTED[:2]
    invariant.process_dies(invariant.view)
    world.rows = EXPECTED[:left]
    invariant.process_died(invariant.view)
    assert bool(texts(invariant)) is (left < 2)
    assert bool(see(invariant, world, EXPECTED[:3])) is (left < 2)
    assert see(invariant, world, EXPECTED[:2]) != []


def test_a_job_that_goes_back_behind_a_checkpoint_takes_its_rows_back() -> None:
    """The job went back because a checkpoint cannot be read; rows that come again must not be there twice."""
    invariant, world = watched()
    see(invariant, world, EXPECTED[:2], CheckpointCompleted(1, 1, 2, 0))
    see(invariant, world, EXPECTED[:2], AttemptStarted(2, 2, 1))
    assert see(invariant, world, EXPECTED[:1], CheckpointCompleted(3, 2, 3, 0)) == []
    assert see(invariant, world, [], CheckpointCompleted(4, 2, 4, 0)) != []


def test_a_commit_before_completion_is_seen_by_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that commits with its snapshot publishes rows that it publishes again after a failure."""
    snapshot_state: Any = _TransactionalCollect.snapshot_state

    def committing(sink: Any, checkpoint_id: int) -> None:
        snapshot_state(sink, checkpoint_id)
        sink.notify_checkpoint_complete(checkpoint_id)

    carried_out()
    monkeypatch.setattr(_TransactionalCollect, "snapshot_state", committing)
    seen: set[str] = set()
    for at in range(8, 40, 2):
        case = Case(config=USUAL, faults=(parse_fault(f"crash:count[0]@{at}us"),))
        finished, _ = carried_out(case=case)
        seen.update(violation.invariant for violation in finished.violations)
    assert {"V2", "V7"} <= seen


def test_a_job_that_depends_on_order_is_only_watched_for_what_is_gone() -> None:
    """V2 does not compare the rows of such a job; the reason is given."""

    def build(parallelism: int | None) -> Job:
        job = Job("numbered", max_parallelism=8)
        numbers = job.source(SequenceSource(0, 40, splits=2), name="numbers", parallelism=2)
        firsts = numbers.key_by(lambda number: 0).reduce(lambda a, b: a * 2 + b, name="fold", parallelism=1)
        firsts.collect(CollectedResults(), name="out")
        return job

    invariants = invariants_for(only=["V1", "V2"])
    finished = run_case(Subject(build), Case(seed="3", config=USUAL), invariants)
    assert finished.violations == []
    assert all("order" in (one.skipped or "") or "compared" in (one.skipped or "") for one in invariants)  # type: ignore[attr-defined]
