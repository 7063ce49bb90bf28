"""The standard scenario without an engine: the least that a case of it can be, in plain Python.

The same records, batches, keys and rows as ``examples/standard_scenario.py``. Two sources send to one counter. A
checkpoint begins after every 27 records, and at the end: each source notes its position and sends a barrier; the
counter aligns the barriers and notes its counts; then the rows so far are published. At one step of the case
everything but that is lost, and goes on from the last checkpoint. Who is next is drawn from a seed.

There are no files, no messages between a job manager and its tasks, no trace and no invariants. So the ratio to this
says what all of that costs, on any machine.
"""

from __future__ import annotations

from collections import deque
from random import Random

from examples.standard_scenario import KEYS, RECORDS

Row = tuple[str, int]

_BATCH, _INTERVAL = 4, 27
_STARTS, _ENDS = [0, RECORDS // 2], [RECORDS // 2, RECORDS]
_STEPS = 50
"""That a case has at least: at one of the first so many it crashes."""


def expected_rows() -> list[Row]:
    """What a case publishes, sorted."""
    return sorted((KEYS[number % len(KEYS)], number // len(KEYS) + 1) for number in range(RECORDS))


def bare_case(seed: int, *, aligns: bool = True) -> list[Row]:
    """One case: what it has published, sorted. ``aligns``: the counter takes nothing from a source whose barrier has
    come until the barrier of the other one is there."""
    draw = Random(seed)
    steps_left = draw.randrange(_STEPS)
    published: list[Row] = []
    saved: tuple[list[int], dict[str, int]] = (_STARTS, {})
    while saved[0] != _ENDS:
        positions, counts, rows = list(saved[0]), dict(saved[1]), list[Row]()
        channels: tuple[deque[range | None], ...] = (deque(), deque())
        cut, to_cut, barriers, since = [0, 0], set[int](), set[int](), 0
        while steps_left and saved[0] != _ENDS:
            steps_left -= 1
            if not (to_cut or barriers or None in channels[0] or None in channels[1]) and (
                since >= _INTERVAL or positions == _ENDS
            ):
                to_cut, since = {0, 1}, 0
            sending = [one for one in (0, 1) if one in to_cut or positions[one] < _ENDS[one]]
            taking = [one for one in (0, 1) if channels[one] and not (aligns and one in barriers)]
            chosen = draw.randrange(len(sending) + len(taking))
            if chosen < len(sending):
                one = sending[chosen]
                if one in to_cut:
                    to_cut.remove(one)
                    cut[one] = positions[one]
                    channels[one].append(None)
                    continue
                batch = range(positions[one], min(positions[one] + _BATCH, _ENDS[one]))
                positions[one], since = batch.stop, since + len(batch)
                channels[one].append(batch)
                continue
            one = taking[chosen - len(sending)]
            records = channels[one].popleft()
            if records is None:
                barriers.add(one)
                if len(barriers) == 2:
                    saved = (cut, dict(counts))
                    published += rows
                    cut, barriers, rows = [0, 0], set(), []
                continue
            for number in records:
                key = KEYS[number % len(KEYS)]
                counts[key] = counts.get(key, 0) + 1
                rows.append((key, counts[key]))
        steps_left = -1
    return sorted(published)
