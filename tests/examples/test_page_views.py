"""The text of the comparison of protocols on page views agrees with its numbers, which are always the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import page_views
from state_backends import MemoryFileSystem


@pytest.fixture(scope="module")
def files() -> MemoryFileSystem:
    made = MemoryFileSystem()
    page_views.write_log(made)
    return made


@pytest.mark.parametrize("mode", page_views.MODES)
def test_undisturbed_all_numbers_are_right_in_every_mode(mode: str, files: MemoryFileSystem) -> None:
    """As plain Python counts them; nothing is sent twice."""
    outcome = page_views.run(mode, files)

    assert page_views.errors(outcome) == (0, 0, 0)
    assert outcome.sent_twice == 0
    assert outcome.messages.data == 3 * page_views.VIEWS


def test_acking_costs_per_record_and_barriers_per_checkpoint(files: MemoryFileSystem) -> None:
    """An INIT, three acknowledgements and a reply for each view, against a fraction of a message."""
    acking = page_views.run("acking", files).messages
    aligned = page_views.run("aligned", files).messages

    assert acking.by_kind == {"init": page_views.VIEWS, "ack": 3 * page_views.VIEWS, "reply": page_views.VIEWS}
    assert aligned.control < page_views.VIEWS / 5


@pytest.mark.parametrize("kill", ["pages[0]", "apps[0]"])
@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_offsets_and_counts_in_one_checkpoint_stay_right(mode: str, kill: str, files: MemoryFileSystem) -> None:
    """Views are read again, and none is counted twice."""
    outcome = page_views.run(mode, files, kill)

    assert outcome.sent_twice > 0
    assert page_views.errors(outcome) == (0, 0, 0)


def test_at_least_once_counts_twice_and_a_set_of_visitors_forgives_it(files: MemoryFileSystem) -> None:
    """Records that overtook the barrier are in the state, and are read again."""
    views, uniques, hits = page_views.errors(page_views.run("at-least-once", files, "pages[0]"))

    assert views > 0
    assert hits > 0
    assert uniques == 0


def test_with_acking_a_neighbour_counts_twice_what_is_sent_again(files: MemoryFileSystem) -> None:
    """Exactly the views that are sent again; uniques are right; and the killed task has lost its state."""
    outcome = page_views.run("acking", files, "pages[0]")
    views, uniques, hits = page_views.errors(outcome)

    assert views == outcome.sent_twice > 0
    assert uniques == 0
    assert hits < 0


def test_with_acking_the_state_of_who_dies_is_gone(files: MemoryFileSystem) -> None:
    """No replay brings back acknowledged records, and so not the set of visitors."""
    views, uniques, _ = page_views.errors(page_views.run("acking", files, "apps[0]"))

    assert views < 0
    assert uniques < 0


def test_what_is_printed_is_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """To the last number, in every run."""
    page_views.main()

    page = (Path(__file__).parents[2] / "docs" / "record-acking.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out.strip() in page
