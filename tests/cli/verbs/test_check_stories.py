"""Each teaching job tells the mistake that its docstring promises, and no other one, in the story of `weir check`."""

from __future__ import annotations

import re

import pytest

from tests.cli.conftest import Weir
from tests.house.project import ROOT

TEACHING = ROOT / "examples" / "teaching"

# Both inputs are alike: which of the two is ahead depends on the order in which the check meets them.
COUNTED_TWICE = (
    r"(?:left|right)\[0\]: sends barrier 1 to count\[0\], takes its snapshot of checkpoint 1",
    r"reads #1 = 1 of \S+, sends \('b', 1\) to count\[0\]",
    r"count\[0\]: takes barrier 1 from (?:left|right)\[0\]",
    r"count\[0\]: takes \('b', 1\) from (?:left|right)\[0\], sent after barrier 1, sends \('b', 1\) to out\[0\]",
    r"count\[0\]: takes barrier 1 from (?:left|right)\[0\], sends barrier 1 to out\[0\],"
    r" takes its snapshot of checkpoint 1",
    r"fault: crash:\S.* strikes",
    r"attempt \d starts from checkpoint 1",
    r"(?:left|right)\[0\]: reads #1 = 1 \(again\) of \S+, sends \('b', 1\) to count\[0\]",
    r"count\[0\]: takes \('b', 1\) from (?:left|right)\[0\], sends \('b', 2\) to out\[0\]",
    r"out\[0\]: readers of out now see \('b', 2\)",
)
PUBLISHED_TWICE = (
    r"out\[0\]: takes barrier 1 from numbers\[0\], .*takes its snapshot of checkpoint 1, readers of out now see 0",
    r"fault: crash:\S.* strikes",
    r"attempt 2 starts from the beginning: no checkpoint",
    r"numbers\[0\]: reads #0 = 0 \(again\) of \S+, sends 0 to out\[0\]",
    r"out\[0\]: takes barrier 2 from numbers\[0\], takes its snapshot of checkpoint 2, readers of out now see 0",
)
WRITTEN_AT_ONCE = (
    r"out\[0\]: takes 0 from numbers\[0\], readers of out now see 0",
    r"fault: crash:\S.* strikes",
    r"attempt \d starts from the beginning: no checkpoint",
    r"numbers\[0\]: reads #0 = 0 \(again\) of \S+, sends 0 to out\[0\]",
    r"out\[0\]: takes 0 from numbers\[0\], readers of out now see 0",
)
TIMER_LOST = (
    r"say\[0\]: takes \('a', 10\) from left\[0\]\n",
    r"say\[0\]: takes barrier 1 from right\[0\], sends barrier 1 to out\[0\], takes its snapshot of checkpoint 1",
    r"say\[0\]: sends \('a', 1\) to out\[0\]",
    r"fault: crash:\S.* strikes",
    r"attempt \d starts from checkpoint 1",
    # The tasks that should say the row send barriers and nothing else.
    r"(?s)(?:(?!say\[\d\]: [^\n]*sends \()(?!readers of out).)*say\[0\]: [^\n]*sends barrier 2 to out\[0\]"
    r"(?:(?!say\[\d\]: [^\n]*sends \()(?!readers of out).)*the job is finished",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said", "verdict"),
    [
        pytest.param(
            ["counting.py", "--mode", "at-least-once"],
            COUNTED_TWICE,
            r"0 lost, 0 duplicated, 1 unexpected; \('b', 2\) expected 0x, found 1x",
            id="a record behind the barrier of one input",
        ),
        pytest.param(
            ["two_phase_commit.py", "--param", "commit=barrier"],
            PUBLISHED_TWICE,
            "0 lost, 1 duplicated, 0 unexpected; 0 expected 1x, found 2x",
            id="committed at the barrier",
        ),
        pytest.param(
            ["two_phase_commit.py", "--param", "commit=never"],
            WRITTEN_AT_ONCE,
            "0 lost, 1 duplicated, 0 unexpected; 0 expected 1x, found 2x",
            id="committed at once",
        ),
        pytest.param(
            ["timers.py", "--mode", "aligned", "--param", "timers=forgotten"],
            TIMER_LOST,
            r"1 lost, 0 duplicated, 0 unexpected; \('a', 1\) expected 1x, found 0x",
            id="a timer in an attribute",
        ),
    ],
)
def test_a_teaching_job_tells_the_mistake_that_it_promises(
    weir: Weir, arguments: list[str], said: tuple[str, ...], verdict: str
) -> None:
    """The steps of the story come in this order, and the output is wrong in just this way."""
    name, *options = arguments
    # The time that the search needs depends on the machine; its findings do not.
    answer = weir("check", str(TEACHING / name), *options, "--time", "10m")
    assert answer.exit_code == 1, answer.stderr
    assert re.search(rf"V1: output 'out' is not exactly-once: {verdict}\n", answer.stderr), answer.stderr
    assert re.search(r": with one fault the output is not exactly-once\. Next: weir replay ", answer.last_line)
    at = answer.stderr.index("What happened")
    for sentence in said:
        found = re.compile(sentence).search(answer.stderr, at)
        assert found, f"{sentence} is not in the rest of the story:\n{answer.stderr[at:]}"
        at = found.end()

