"""The choice recorder: one sequence, read by seed, by replay and by a shrinker."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import ConfigurationError
from engine.runtime.kernel import Choice, ChoiceRecorder
from engine.runtime.kernel.choices import ChoiceLog

DRAWS = st.lists(st.tuples(st.sampled_from(("schedule", "faults", "sizes")), st.integers(1, 1000)), max_size=40)


def draw_all(recorder: ChoiceRecorder, draws: list[tuple[str, int]]) -> list[int]:
    return [recorder.draw(stream, bound) for stream, bound in draws]


@given(DRAWS, st.text(max_size=5))
def test_values_are_below_their_bound_and_recorded(draws: list[tuple[str, int]], seed: str) -> None:
    """Every value is in range; every decision with an alternative is in the log, in order."""
    recorder = ChoiceRecorder(seed)

    values = draw_all(recorder, draws)

    assert all(0 <= value < bound for value, (_, bound) in zip(values, draws, strict=True))
    taken = [Choice(stream, value, bound) for value, (stream, bound) in zip(values, draws, strict=True) if bound > 1]
    assert recorder.log == taken


@given(DRAWS, st.text(max_size=5))
def test_a_seed_means_one_sequence(draws: list[tuple[str, int]], seed: str) -> None:
    """The same seed and the same questions give the same answers and the same digest."""
    one, other = ChoiceRecorder(seed), ChoiceRecorder(seed)

    assert draw_all(one, draws) == draw_all(other, draws)
    assert one.digest() == other.digest()


@given(DRAWS, DRAWS)
def test_streams_are_independent(draws: list[tuple[str, int]], more: list[tuple[str, int]]) -> None:
    """Further draws from other streams change nothing in this one."""
    alone, mixed = ChoiceRecorder("s"), ChoiceRecorder("s")
    expected = [alone.draw("schedule", 100) for _ in draws]

    found = []
    for index in range(len(draws)):
        for stream, bound in more[: index % 3]:
            mixed.draw(f"other {stream}", bound)
        found.append(mixed.draw("schedule", 100))

    assert found == expected


@given(DRAWS, st.text(max_size=3), st.text(max_size=3))
def test_replay_gives_the_recorded_answers(draws: list[tuple[str, int]], seed: str, other_seed: str) -> None:
    """A replay needs no seed: the recording alone gives the same answers, the same log and the same digest."""
    recorder = ChoiceRecorder(seed)
    values = draw_all(recorder, draws)

    replay = ChoiceRecorder(other_seed, replay=recorder.log)

    assert draw_all(replay, draws) == values
    assert replay.log == recorder.log
    assert replay.digest() == recorder.digest()


def test_a_shortened_recording_goes_on_from_the_seed() -> None:
    """After the end of a recording the seed takes over, so a shrunk recording is still a whole run."""
    replay = ChoiceRecorder("s", replay=[Choice("schedule", 3, 7)])

    first, rest = replay.draw("schedule", 7), [replay.draw("schedule", 50) for _ in range(5)]

    fresh = ChoiceRecorder("s")
    assert first == 3
    assert rest == [fresh.draw("schedule", 50) for _ in range(5)]


@pytest.mark.parametrize("asked", [("schedule", 8), ("faults", 7)])
def test_a_foreign_recording_is_refused(asked: tuple[str, int]) -> None:
    """A recording of other questions belongs to another run: the error names the choice that differs."""
    replay = ChoiceRecorder("s", replay=[Choice("schedule", 3, 7), Choice("schedule", 3, 7)])
    replay.draw("schedule", 7)

    with pytest.raises(ConfigurationError, match=r"choice 1 was recorded as 'schedule' of 7.*asks") as raised:
        replay.draw(*asked)

    assert f"{asked[0]!r} of {asked[1]}" in str(raised.value)


def test_one_possibility_is_no_choice() -> None:
    """A bound of 1 draws no number, records no choice and leaves the stream where it is."""
    recorder, other = ChoiceRecorder("s"), ChoiceRecorder("s")

    assert recorder.draw("schedule", 1) == 0
    assert recorder.log == []
    assert recorder.draw("schedule", 1 << 60) == other.draw("schedule", 1 << 60)


def test_no_possibility_is_a_bug() -> None:
    """A bound of 0 leaves no value to choose."""
    with pytest.raises(AssertionError):
        ChoiceRecorder("s").draw("schedule", 0)


def test_digests_tell_choices_apart() -> None:
    """Another value, bound, stream or order is another digest."""
    logs: tuple[list[Choice], ...] = (
        [],
        [Choice("a", 0, 2)],
        [Choice("a", 1, 2)],
        [Choice("a", 0, 3)],
        [Choice("b", 0, 2)],
        [Choice("a", 0, 2), Choice("a", 1, 2)],
        [Choice("a", 1, 2), Choice("a", 0, 2)],
    )

    digests = []
    for log in logs:
        recorder = ChoiceRecorder("s", replay=log)
        for choice in log:
            recorder.draw(choice.stream, choice.bound)
        digests.append(recorder.digest())

    assert len(set(digests)) == len(logs)


def test_draws_are_spread_evenly() -> None:
    """No value is favoured: 6,000 draws of 6 stay within a tenth of even."""
    recorder = ChoiceRecorder("dice")

    counts = Counter(recorder.draw("schedule", 6) for _ in range(6_000))

    assert set(counts) == set(range(6))
    assert all(900 <= count <= 1_100 for count in counts.values())


def test_the_generator_is_pinned() -> None:
    """Seeds mean the same in every version: these draws were made once and must stay."""
    recorder = ChoiceRecorder("0")

    assert [recorder.draw("schedule", 1_000_000) for _ in range(4)] == PINNED


PINNED = [856344, 501517, 533471, 501309]


@given(
    DRAWS.map(lambda draws: [*draws, *((stream, 1 << bits) for stream in ("schedule", "sizes") for bits in (32, 33))]),
    st.sampled_from([1, 2, 1 << 40]),
    st.integers(0, 50),
)
def test_the_log_reads_like_a_list(draws: list[tuple[str, int]], part: int, at: int) -> None:
    """Packed or not, choices come back as they were made: one at a time, from the end, in pieces, and in order."""
    log, choices = ChoiceLog(), [Choice(stream, (bound - 1) // part, bound) for stream, bound in draws]
    for choice in choices:
        log.append(choice)

    at %= len(choices)
    assert (len(log), log[at], log[-1], log[at:], list(log)) == (
        len(choices),
        choices[at],
        choices[-1],
        choices[at:],
        choices,
    )
    assert log == choices
    assert log != choices[:-1]
    assert repr(log) == repr(choices)
    with pytest.raises(IndexError):
        log[len(choices)]


@given(st.text(max_size=3), st.lists(st.integers(1, 300), max_size=6))
def test_numbers_that_are_made_ahead_are_the_draws(seed: str, counts: list[int]) -> None:
    """However many at a time, and with draws in between; a recording tells them one by one."""
    drawn, ahead = ChoiceRecorder(seed), ChoiceRecorder(seed)
    for count in counts:
        expected = [drawn.draw("times", 1 << 32) for _ in range(count)]
        assert ahead.words_ahead("times", count) == expected
        assert ahead.draw("times", 9) == drawn.draw("times", 9)
    assert ChoiceRecorder("7", replay=drawn.log).words_ahead("times", 5) is None


def test_picks_are_the_draws_of_the_schedule() -> None:
    """However numbers are made ahead, and with draws in between: more than are made at once."""
    picking, drawing = ChoiceRecorder("7"), ChoiceRecorder("7")
    event = (0, 0, "run", None, None)
    for number in range(400):
        bound = 2 + number % 5
        picked = picking.draw("schedule", bound) if number % 7 == 3 else picking.pick([event] * bound)
        assert picked == drawing.draw("schedule", bound), number
    assert picking.log == drawing.log
