"""A fault plan keeps exactly the faults it was given, and names errors in its input."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import ConfigurationError
from engine.faults import FaultPlan, KillTask, parse_kill


class RecordingExecution:
    """Takes kills and remembers them, in order."""

    def __init__(self) -> None:
        self.kills: list[tuple[str, int, str]] = []

    def kill(self, target: str, at_ns: int, cause: str = "killed") -> None:
        self.kills.append((target, at_ns, cause))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count[1]@120ms", KillTask("count[1]", 120_000_000)),
        ("count@1.5s", KillTask("count", 1_500_000_000)),
        (" map -> count[0] @ 20us", KillTask("map -> count[0]", 20_000)),
        ("a@b@3ns", KillTask("a@b", 3)),
        ("count@0ms", KillTask("count", 0)),
        ("job manager@70ms", KillTask("job manager", 70_000_000)),
    ],
)
def test_a_kill_is_read_as_written(text: str, expected: KillTask) -> None:
    """The time follows the last @, so that a name may contain one."""
    assert parse_kill(text) == expected


@pytest.mark.parametrize("text", ["count[1]", "@120ms", "  @120ms", "count@", "count@120", "count@-1ms", "count@soon"])
def test_an_unreadable_kill_says_how_to_write_it(text: str) -> None:
    """Whatever is missing, the message repeats the text and shows a valid one."""
    with pytest.raises(ConfigurationError) as error:
        parse_kill(text)

    assert repr(text) in str(error.value)
    assert "120ms" in str(error.value) or "250ms" in str(error.value)


@given(st.text(alphabet="abc[]0 ->@", min_size=1).filter(str.strip), st.integers(0, 2**53))
def test_a_kill_is_printed_as_the_option_that_repeats_it(target: str, at_ns: int) -> None:
    """Reading what a kill prints gives the same kill, to the nanosecond (up to a hundred days)."""
    kill = KillTask(target.strip(), at_ns)

    assert parse_kill(str(kill)) == kill


def test_a_kill_before_the_run_is_refused() -> None:
    """A run has no time before its start, and a kill needs a target."""
    with pytest.raises(ConfigurationError, match="before its start"):
        KillTask("count", -1)
    with pytest.raises(ConfigurationError, match="names no task"):
        KillTask(" ", 1)


def test_a_plan_installs_every_kill_in_order() -> None:
    """Kills at one instant happen in the order of the plan."""
    plan = FaultPlan.parse(["b@1ms", "a@1ms", "b@1ms"])
    execution = RecordingExecution()
    plan.install(execution)

    assert execution.kills == [("b", 1_000_000, "killed"), ("a", 1_000_000, "killed"), ("b", 1_000_000, "killed")]
    assert plan.options() == ("--kill", "b@1ms", "--kill", "a@1ms", "--kill", "b@1ms")


def test_an_empty_plan_does_nothing() -> None:
    """No faults, no options, no effect."""
    execution = RecordingExecution()
    FaultPlan().install(execution)

    assert execution.kills == []
    assert FaultPlan().options() == ()
