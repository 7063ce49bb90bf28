"""Which reference speaks for which sink: expected(), the second opinion, runs without faults, or the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import CollectedResults, Job, JobFileError, SequenceSource
from engine.cli.cases import load_subject
from engine.cli.text.exploration import reference_plain, summary_line
from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from engine.elements.operator import Operator
from engine.explore.run import RUNS, Expected, Subject
from engine.explore.run.references import EXPECTED, LEDGER, OPINION
from engine.explore.search import CampaignOrder, explore
from tests.explore.subjects import counting_subject, failing_subject, order_dependent_subject

ORDER = CampaignOrder(seed="references", runs=4)


class Doubling(Operator):
    """An operator of the job's own; ``lost``: a record that it loses, whatever happens."""

    lost: int | None = None

    def process_batch(self, batch: Batch) -> None:
        self.output.emit(Batch([2 * value for value in batch.values if value != self.lost], batch.timestamps))


def doubling(expected: Callable[..., object] | None = None, *, takes_inputs: bool = False) -> Subject:
    """Numbers, doubled by an operator of the job's own, and as they are."""

    def build(_parallelism: int | None) -> Job:
        job = Job("doubling", max_parallelism=8)
        numbers = job.source(SequenceSource(0, 6), name="numbers", uid="numbers", parallelism=1)
        numbers.collect(CollectedResults(), name="plain", uid="plain", parallelism=1)
        doubled = numbers.via(Doubling, name="twice", uid="twice", parallelism=1)
        doubled.collect(CollectedResults(), name="out", uid="out", parallelism=1)
        return job

    said = None if expected is None else Expected(expected, takes_inputs, "doubling.py")
    return Subject(build, label="doubling", expected=said)


def from_inputs(inputs: Any) -> dict[str, list[int]]:
    return {"out": [2 * number for number in inputs["numbers"]]}


def test_each_sink_is_judged_by_what_can_speak_for_it() -> None:
    """The opinion does not know the job's own operator; the sink beside it does not depend on that operator."""
    reference = doubling().reference()
    assert reference.judges == {"plain": OPINION, "out": RUNS}
    assert "'twice'" in reference.not_evaluated["out"]
    assert "Doubling" in reference.not_evaluated["out"]
    assert not reference.is_independent
    assert reference.judged_by == "second opinion for plain; runs without faults for out"
    assert sorted(reference.rows) == ["out", "plain"]


def test_expected_comes_first() -> None:
    """Texts are as readers see them, records as the sink writes them."""
    subject = doubling(lambda: {"out": ["0", "2", 4, 6, 8, 10]})
    reference = subject.reference()
    assert reference.judges == {"plain": OPINION, "out": EXPECTED}
    assert reference.is_independent
    assert reference.rows["out"] == ["0", "2", "4", "6", "8", "10"]


def test_expected_of_part_of_the_input_needs_inputs() -> None:
    """Without them the runs speak for a smaller case."""
    dropped = {"numbers/sequence-0-of-1": ((0, 4),)}
    asked = doubling(from_inputs, takes_inputs=True).reference(dropped)
    assert asked.judges["out"] == EXPECTED
    assert asked.rows["out"] == ["8", "10"]
    assert asked.rows["plain"] == ["4", "5"]
    runs = doubling(lambda: {"out": range(0, 12, 2)}).reference(dropped)
    assert runs.judges["out"] == RUNS
    assert runs.rows["out"] == ["8", "10"]


def test_an_operator_of_the_jobs_own_is_convicted_by_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs agree, and all lose a record."""
    monkeypatch.setattr(Doubling, "lost", 3)
    assert explore(doubling, ORDER).verdict[0] != "violated"
    report = explore(lambda: doubling(from_inputs, takes_inputs=True), ORDER)
    assert report.verdict[0] == "violated"
    assert "6 expected 1x, found 0x" in report.verdict[1]
    assert report.failures[0].seed == "without-faults/0"


def test_the_summary_and_the_json_report_name_the_reference() -> None:
    """By kind in one line; sink by sink, with reasons, as data."""
    report = explore(doubling, ORDER)
    assert "reference=second-opinion+runs-without-faults" in summary_line(report)
    plain = reference_plain(report.reference)
    assert plain is not None
    assert plain["sinks"] == {"plain": OPINION, "out": RUNS}
    assert list(plain["not_evaluated"]) == ["out"]
    assert plain["order_dependent"] is None
    assert "reference=second-opinion " in summary_line(explore(counting_subject, ORDER))
    assert "reference=none" in summary_line(explore(counting_subject, replace(ORDER, promise="none")))


@pytest.mark.slow
def test_where_orders_disagree_the_ledger_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are committed once more after a restore are found, although no rows can be compared."""
    assert order_dependent_subject().reference().judged_by == LEDGER
    assert not explore(order_dependent_subject, replace(ORDER, runs=10)).failures

    def every_time(self: CollectedResults, transaction: Any, records: list[Any]) -> bool:
        self.append(records)
        return True

    monkeypatch.setattr(CollectedResults, "commit", every_time)
    report = explore(order_dependent_subject, replace(ORDER, runs=60))
    assert report.verdict[0] == "violated"
    assert "effects" in [one.invariant for one in report.failures[0].violations]


def test_a_job_that_fails_by_itself_says_so_itself() -> None:
    """Its own error, not one of the evaluator."""
    with pytest.raises(ConfigurationError, match="even when nothing goes wrong"):
        failing_subject().reference()


# -- expected() of a job file -----------------------------------------------------------------------------------------

JOB = """
from engine import CollectedResults, Job, SequenceSource


def job(records: str = "4") -> Job:
    made = Job("small", max_parallelism=8)
    numbers = made.source(SequenceSource(0, int(records)), name="numbers", uid="numbers")
    return numbers.collect(CollectedResults(), name="out", uid="out")

"""


def written(directory: Path, expected: str) -> str:
    path = directory / "small.py"
    path.write_text(JOB + expected, encoding="utf-8")
    return str(path)


def test_expected_takes_the_parameters_that_it_names(tmp_path: Path) -> None:
    """And the inputs, if it names those."""
    function = 'def expected(inputs, records="4"):\n    return {"out": inputs["numbers"][: int(records)]}\n'
    path = written(tmp_path, function)
    reference = load_subject(path, {"records": "3"}).reference()
    assert reference.judges == {"out": EXPECTED}
    assert reference.rows == {"out": ["0", "1", "2"]}


@pytest.mark.parametrize(
    ("expected", "says"),
    [
        ("expected = 3\n", "must be a function"),
        ("def expected(keys):\n    return {}\n", "needs 'keys'"),
        ("def expected():\n    return [1]\n", "returned list instead of rows by sink"),
        ("def expected():\n    return {'out': 3}\n", "returned dict instead of rows by sink"),
        ("def expected():\n    return {}['out']\n", "raised KeyError"),
        ("def expected():\n    return {'other': [1]}\n", "the job has no such sink"),
    ],
)
def test_what_is_wrong_with_expected_is_said(tmp_path: Path, expected: str, says: str) -> None:
    """What, where, and how to repair it."""
    path = written(tmp_path, expected)
    with pytest.raises((JobFileError, ConfigurationError), match=says) as caught:
        load_subject(path, {}).reference()
    assert "small.py" in str(caught.value)
    assert "fix" in str(caught.value) or "must be" in str(caught.value)
