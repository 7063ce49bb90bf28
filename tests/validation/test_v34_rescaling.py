"""V34: how much state moves when a job is rescaled."""

from __future__ import annotations

from collections.abc import Iterator

from engine.study import moved_share
from tests.validation.targets import Figure, Size, assert_plausible, target

GROUPS = 32_768


def moved(before: int, after: int) -> float:
    """The share of key groups that another subtask has afterwards."""
    return moved_share(before, after, GROUPS)


@target("V34", "how much state moves when a job is rescaled?", study=[moved])
def movement(size: Size) -> Iterator[Figure]:
    """Rounded as the published shares."""
    for before, after, expected in ((2, 3, 0.5), (4, 8, 0.875), (10, 11, 0.5), (10, 20, 0.95), (100, 101, 0.5)):
        yield Figure(f"{before} to {after}: share of the state", expected, round(moved(before, after), 3), 0)


def test_ranges_of_key_groups_move_more_than_they_must() -> None:
    """Subtask i of p has the groups from i / p to (i + 1) / p, so a group stays only where subtask i has it before and
    after; 1 - p / p' would have to move (S. Richter: A deep dive into rescalable state in Apache Flink, Flink blog of
    2017-07-04).
    """
    assert_plausible(movement)
