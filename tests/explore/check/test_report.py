"""How endings are judged: promises, verdicts, and the case of a wrong ending."""

from __future__ import annotations

import pytest

from engine import CollectedResults, CollectionSource, Job
from engine.elements.batch import Batch
from engine.explore.cases import FIFO
from engine.explore.check import STATES, CheckOrder, Found, check
from engine.explore.check.check_report import case_of, keeps
from engine.explore.check.search import WRONG, Search
from engine.explore.opinion import compare_outputs
from engine.explore.run import Subject, run_case
from operators.basic import ReduceOperator
from tests.explore.check.jobs import calm_case, counting, failing_once_restored, hasty, merging, straight
from tests.explore.subjects import failing_subject

REFERENCE = {"out": ["1", "2"]}


@pytest.mark.parametrize(
    ("promise", "rows", "kept"),
    [
        ("exactly-once", ["2", "1"], True),
        ("exactly-once", ["1", "2", "2"], False),
        ("exactly-once", ["1"], False),
        ("at-least-once", ["1", "2", "2"], True),
        ("at-least-once", ["1"], False),
        ("at-least-once", ["1", "3"], True),
        ("at-least-once", ["3"], False),
        ("at-most-once", ["1"], True),
        ("at-most-once", ["1", "1"], False),
        ("at-most-once", ["3"], False),
        ("none", ["7"], True),
    ],
)
def test_promises(promise: str, rows: list[str], kept: bool) -> None:
    """Exactly-once is the same rows, at-least-once no fewer, at-most-once no others."""
    assert keeps(promise, compare_outputs(REFERENCE, {"out": rows})) is kept


def test_all_endings_of_an_aligned_job_are_right() -> None:
    """Two sources, a shuffle, a checkpoint at any moment, a crash of the process at any point: exactly-once."""
    report = check(counting(1, 1), CheckOrder(calm_case(1), victims=("process",), seconds=100))
    assert report.verdict == ("valid", "all 2 endings are exactly-once", 0)
    assert repr(report) == f"<CheckReport valid: {report.found.states:,} states, 2 endings>"
    assert report.outputs == 1
    assert report.own_promise == "exactly-once"
    assert report.witness is None
    assert report.found.transitions > 20 * report.found.states


def test_a_wrong_ending_comes_with_the_case_that_ends_so() -> None:
    """The case of a wrong ending is first come, first served except where it says otherwise; its run ends so too."""
    report = check(hasty(), CheckOrder(calm_case()))
    name, reason, code = report.verdict
    assert (name, reason, code) == ("violated", "with one fault the output is not exactly-once", 1)
    assert report.witness is not None
    assert report.witness.scheduler == FIFO
    assert [fault.kind for fault in report.witness.faults] == ["crash"]
    finished = run_case(hasty(), report.witness)
    assert finished.committed == {"out": ["0", "0"]}
    assert finished.faults == report.witness.faults


@pytest.mark.parametrize("faults", [0, 1])
def test_every_ending_can_be_made_again(faults: int) -> None:
    """The case of a path is a run of its own that ends as the search says."""
    order = CheckOrder(calm_case(1), faults=faults, victims=("task",))
    endings = check(merging(), order).found.endings
    assert len(endings) == 2 * (faults + 1)
    for ending in endings:
        case = case_of(merging(), order, ending.path)
        assert len(case.faults) == ending.faults
        finished = run_case(merging(), case)
        assert {where: tuple(sorted(rows)) for where, rows in finished.committed.items()} == dict(ending.committed)


@pytest.mark.slow
def test_one_search_judges_two_promises() -> None:
    """At-least-once is violated as exactly-once, and its own promise holds in all endings of the same search."""
    order = CheckOrder(calm_case(1, mode="at-least-once"), victims=("task",), seconds=100)
    report = check(counting(2, 2), order)
    assert report.verdict[0] == "violated"
    assert report.own_promise == "at-least-once"
    assert report.own_wrong is None
    assert report.found.is_complete
    assert report.confirmed is not None
    assert report.wrong is not None
    assert sorted(report.confirmed.committed["out"]) == list(dict(report.wrong.committed)["out"])


def test_an_order_dependent_job_is_judged_by_all_its_endings() -> None:
    """Any output that a run without faults could have shown is right."""
    report = check(merging(), CheckOrder(calm_case()))
    assert report.outputs == 2
    assert report.verdict[0] == "valid"
    assert report.plain()["endings"][0]["committed"]["out"] in (["'a'", "'ab'"], ["'b'", "'ba'"])


def test_a_job_that_never_ends_is_no_valid_one() -> None:
    """A function that always fails leads round and round through restarts: no ending, and not a single one right."""
    report = check(failing_subject(), CheckOrder(calm_case(), faults=0))
    assert report.found.is_complete
    assert report.found.endings == []
    name, reason, code = report.verdict
    assert (name, code) == ("violated", 1)
    assert "never ends" in reason


def test_a_bound_makes_the_verdict_unknown() -> None:
    """Nothing wrong so far is not the same as nothing wrong. The verdict names the bound and how far the search was."""
    report = check(straight(2), CheckOrder(calm_case(1), max_states=5))
    name, reason, code = report.verdict
    assert (name, code) == ("unknown", 2)
    assert report.found.stopped_by == STATES
    assert f"at its bound of 5 states (--max-states): 5 states kept, {report.found.transitions} passed" in reason
    assert f"{report.found.frontier} states and faults still to try" in reason
    assert report.found.frontier > 0
    late = check(straight(2), CheckOrder(calm_case(1), seconds=0.000_001))
    assert "at its bound of 1e-06 s (--time)" in late.verdict[1]


def test_wrong_output_is_told_rather_than_a_job_that_fails() -> None:
    """With one fault the job fails first; a few events later it shows a row twice, which users would overlook."""
    report = check(failing_once_restored(transactional=False), CheckOrder(calm_case(1), victims=("process",)))
    bad = [one for one in report.found.endings if one.faults]
    assert bad[0].state == "failed"
    assert report.wrong is not None
    assert report.wrong.state == "finished"
    assert report.wrong.faults == 1
    assert report.verdict[1] == "with one fault the output is not exactly-once"
    assert report.meant is not None
    assert report.meant.invariant == "V1"


def test_a_job_that_fails_is_told_when_no_wrong_output_is_near() -> None:
    """After the failure the search makes as many steps again as it took to find it, and then stops."""
    report = check(failing_once_restored(transactional=True), CheckOrder(calm_case(1), faults=2))
    assert report.wrong is not None
    assert report.wrong.state == "failed"
    assert report.found.stopped_by == WRONG
    assert "with one fault the job ends failed" in report.verdict[1]


@pytest.mark.slow
def test_a_search_for_wrong_output_is_soon_over() -> None:
    """As many steps again as for the failure are less than half of the whole search."""
    subject, order = failing_once_restored(transactional=True), CheckOrder(calm_case(1), faults=2)
    whole = Search(subject, order)
    assert list(whole.endings())
    assert check(subject, order).found.transitions < whole.found.transitions / 2


def test_a_search_tells_how_far_it_is() -> None:
    """Every number grows, the last report is the total, and asking does not change the search."""
    told: list[tuple[int, int, int, int]] = []

    def tell(found: Found) -> None:
        told.append((found.states, found.transitions, found.struck, found.frontier))

    order = CheckOrder(calm_case(1), victims=("process",))
    asked, unasked = check(straight(), order, progress=tell).found, check(straight(), order).found
    assert len(told) > 20
    assert told == sorted(told, key=lambda one: one[:3])
    assert told[-1] == (asked.states, asked.transitions, asked.struck, 0)
    assert max(frontier for *_, frontier in told) > 1
    assert (asked.states, asked.transitions, asked.endings) == (unasked.states, unasked.transitions, unasked.endings)


def test_a_mistake_of_every_run_is_no_right_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endings without faults are judged, too: the second opinion says what they must be."""
    process = ReduceOperator.process_batch

    def process_batch(self: ReduceOperator, batch: Batch) -> None:
        if batch.keys != ["lost"]:
            process(self, batch)

    monkeypatch.setattr(ReduceOperator, "process_batch", process_batch)

    def build(_parallelism: int | None) -> Job:
        job = Job("losing", max_parallelism=8)
        keys = job.source(CollectionSource(["kept", "lost"]), name="keys", uid="keys")
        seen = keys.key_by(lambda key: key).reduce(lambda first, _: first, name="seen", uid="seen")
        seen.collect(CollectedResults(), name="out", uid="out")
        return job

    report = check(Subject(build, label="losing"), CheckOrder(calm_case(), faults=0))
    assert report.verdict == ("violated", "without any fault the output is not exactly-once", 1)
    assert report.judged_by == "second opinion"
    assert report.outputs == 1
