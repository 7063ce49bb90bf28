"""The way of one record, and of one barrier, stays short: it may be made shorter, and the bounds with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.runtime.config import CostModel
from tests.house.walk import Walk, follow, walk_of_barrier, walk_of_record

# What a reader has to open and to follow. Lower these when the way has become shorter; raise them for no convenience.
RECORD_BOUNDS = {"kernel events": 4, "calls": 96, "files": 27, "classes": 28, "switches between files": 70}
BARRIER_BOUNDS = {"kernel events": 17, "calls": 756, "files": 51, "classes": 82, "switches between files": 423}


def _longer_than(walk: Walk, bounds: dict[str, int]) -> dict[str, str]:
    figures = walk.figures()
    return {what: f"{figures[what]}, at most {bound}" for what, bound in bounds.items() if figures[what] > bound}


def test_the_way_of_a_record() -> None:
    """A record goes from its line in the file to the sink's part in no more steps than it did."""
    walk = walk_of_record()

    assert {"LineReader.read", "Channel.put_batch", "Bucket.write"} <= {call.function for call in walk.calls}
    assert not _longer_than(walk, RECORD_BOUNDS)


def test_the_way_of_a_barrier() -> None:
    """A barrier goes from the timer that triggers it to the commit of the sink's part in no more steps than it did."""
    walk = walk_of_barrier()

    functions = [call.function for call in walk.calls]
    assert functions.index("CheckpointDriver.on_timer") < functions.index("Channel.put_barrier")
    assert functions.index("Channel.put_barrier") < functions.index("RecoverableWriter.commit")
    assert not _longer_than(walk, BARRIER_BOUNDS)


def _told(heading: str) -> list[tuple[str, str]]:
    """The calls, with their files, that the page on architecture lists below a heading."""
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [(path, call) for call, path in re.findall(r"^\|[^|]*\| `([^`]+)` \| `([^`]+)` \|$", section, re.MULTILINE)]


def _first_untold(told: list[tuple[str, str]], walk: Walk) -> tuple[str, str] | None:
    """The first call of the page that does not come in the walk after those before it."""
    calls = iter([(call.path, call.function) for call in walk.calls])
    return next((one for one in told if one not in calls), None)


@pytest.mark.parametrize(
    ("heading", "way"), [("One record's way", walk_of_record), ("One checkpoint's way", walk_of_barrier)]
)
def test_the_page_on_architecture_walks_the_same_way(heading: str, way: Callable[[], Walk]) -> None:
    """Each call that the page tells of is made, in the file that it names, in this order."""
    told, walk = _told(heading), way()

    assert len(told) > 8
    assert _first_untold(told, walk) is None
    assert _first_untold([*told, told[0]], walk) == told[0], "a call out of its turn is noticed"


def test_a_walk_counts_calls_of_the_program_alone() -> None:
    """Functions of the program are counted, each call of them, with the class of their object; no others are."""
    model = CostModel()
    calls = follow(lambda: [model.storage_ns(1, 1), model.storage_ns(1, 1), sorted([2, 1], key=lambda one: -one)])

    assert [(call.path, call.kind, call.function) for call in calls] == [
        ("engine/runtime/config/cost.py", "engine.runtime.config.cost.CostModel", "CostModel.storage_ns")
    ] * 2


def test_a_longer_way_is_noticed() -> None:
    """A walk with one call more than its bound allows does not pass."""
    walk = walk_of_record()
    figures = walk.figures()
    walk.calls.append(walk.calls[-1])

    assert _longer_than(walk, figures) == {"calls": f"{figures['calls'] + 1}, at most {figures['calls']}"}


@pytest.mark.parametrize("way", [walk_of_record, walk_of_barrier])
def test_a_walk_is_the_same_each_time(way: Callable[[], Walk]) -> None:
    """Two walks of one way are equal, call by call."""
    assert way().calls == way().calls
