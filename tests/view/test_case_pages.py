"""Pages of cases: of one, of two side by side, and of those that keep no ledger."""

from __future__ import annotations

from dataclasses import replace

from engine import CollectedResults, CollectionSource, CollectSink, Job
from engine.explore.cases import DRAIN, FIFO, Case, Savepoint
from engine.explore.run import Bounds, Subject, Violation
from engine.faults.fault import parse_fault
from engine.view import case_page, cases_page
from examples.teaching import counting
from tests.view.recorded import CASE


def test_pages_of_cases() -> None:
    """A case has a page with its violation and the endings of a check; two cases stand side by side."""
    subject = Subject(lambda _: counting.job(), label="counting")
    violation = Violation("V1", "output 'out' is not exactly-once")
    endings = {"text": "2 states, 1 endings, none wrong", "list": []}

    one = case_page("one", subject, CASE, violations=[violation], endings=endings)
    two = cases_page("two", subject, [("first", CASE, ()), ("second", replace(CASE, faults=()), ())])

    assert "is not exactly-once" in one
    assert "none wrong" in one
    assert "job manager@after:manifest.rename#1 strikes" in one
    # Only in the first run: its row, and its place in the story.
    assert two.count("job manager@after:manifest.rename#1 strikes") == 2
    # The same ledger as of a run: an output leads to its records.
    assert '"cause":"record 0 of right/sequence-0-of-1"' in one


def test_a_case_that_keeps_no_ledger_has_a_page() -> None:
    """Tracked records, a job that goes on from another one's savepoint, damage, and a job that fails by itself."""
    subject = Subject(lambda _: counting.job(), label="counting")
    resumed = Case(savepoints=(Savepoint(DRAIN, 1),), scheduler=FIFO)

    def dividing(number: int) -> Job:
        job = Job("dividing")
        divided = job.source(CollectionSource([number]), name="one").map(lambda one: 1 // one)
        divided.sink(CollectSink(CollectedResults(transactional=False)), name="out")
        return job

    tracked = (Subject(lambda _: dividing(1), label="dividing"), Case(config={"mode": "acking"}, scheduler=FIFO))
    broken = (Subject(lambda _: dividing(0), label="dividing"), Case())
    damaged = replace(CASE, faults=(parse_fault("bit-flip:*_metadata#1=77"),))
    for one, case in ((subject, resumed), (subject, damaged), tracked, broken):
        assert '"ledger":null' in case_page("one", one, case, bounds=Bounds(events=2_000))
