"""``SCENARIO`` of a job file: read, checked, and turned into cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cli.settings import load_job
from engine.elements.errors import JobFileError
from engine.explore.cases import Scenario, read_scenario

FILE = """
from engine import CollectionSource, Job
SCENARIO = {"batch_size": 1, "modes": ["unaligned"], "crashes": 2}
def job():
    made = Job("example")
    made.source(CollectionSource([1])).collect([])
    return made
"""


def test_a_job_file_says_how_its_job_is_searched(tmp_path: Path) -> None:
    """The file's definitions come with the job; a file without any has the defaults."""
    path = tmp_path / "example.py"
    path.write_text(FILE)
    loaded = load_job(str(path), {})
    scenario = read_scenario(loaded.scenario, loaded.path)
    assert (dict(scenario.config), scenario.modes, scenario.crashes) == ({"batch_size": 1}, ("unaligned",), 2)

    path.write_text(FILE.replace("SCENARIO", "OTHER"))
    assert read_scenario(load_job(str(path), {}).scenario) == Scenario()


def test_a_case_has_the_settings_of_the_scenario_and_its_mode() -> None:
    """The first mode unless another is named; what belongs to one mode alone is left out in others; arguments win."""
    scenario = read_scenario(
        {"batch_size": 1, "aligned_timeout_ns": 5, "cost.record_ns": 3, "modes": ["aligned-timeout", "exactly-once"]}
    )
    assert scenario.case().config == {
        "batch_size": 1,
        "aligned_timeout_ns": 5,
        "cost.record_ns": 3,
        "mode": "aligned-timeout",
    }
    assert scenario.case("exactly-once", batch_size=2).config == {
        "batch_size": 2,
        "cost.record_ns": 3,
        "mode": "aligned",
    }
    assert read_scenario({"mode": "at-least-once"}).modes == ("at-least-once",)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], "it is a list, and must be a dict"),
        ({1: 2}, "1 is no name of a setting"),
        ({"batch_sise": 1}, "no setting 'batch_sise'.*did you mean 'batch_size'"),
        ({"crahses": 1}, "did you mean 'crashes'"),
        ({"batch_size": 0}, "at least 1"),
        ({"cost.nothing": 1}, "cost.nothing"),
        ({"modes": "aligned"}, "modes is 'aligned', and must be a list"),
        ({"modes": ["sideways"]}, "sideways"),
        ({"crashes": -1}, "crashes is -1"),
        ({"checkpoints": "2"}, "checkpoints is '2'"),
        ({"faults": ["crush"]}, "crush"),
        ({"promises": {"aligned": "sometimes"}}, "promises: 'aligned': 'sometimes'"),
        ({"promises": {"unaligned": "exactly-once"}}, "must be one of its modes"),
        ({"promises": 3}, "promises is 3"),
    ],
)
def test_what_makes_no_sense_is_refused(raw: object, message: str) -> None:
    """With the file, the name and what is allowed."""
    with pytest.raises(JobFileError, match=message) as caught:
        read_scenario(raw, "job.py")
    assert str(caught.value).startswith("job.py: SCENARIO: ")


def test_faults_may_be_kinds_or_exact() -> None:
    """Both are kept as they are written."""
    texts = ["crash", "lose:receive_acknowledge count[1]#1"]
    assert read_scenario({"faults": texts, "checkpoints": 2}).faults == tuple(texts)
