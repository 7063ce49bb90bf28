"""The automaton of patterns, against every sequence of records that the definition of a match allows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.errors import ConfigurationError
from operators.patterns import Pattern
from operators.patterns.nfa import Match, Nfa, State
from operators.patterns.sequence import (
    ANY,
    NO_SKIP,
    NOT_FOLLOWED,
    NOT_NEXT,
    RELAXED,
    SKIP_STRATEGIES,
    SKIP_TO_NEXT,
    STRICT,
    Stage,
)

Taken = tuple[tuple[int, int], ...]
"""(number, stage) of each record of a match."""


# --- the definition, word by word: enumerate everything, then judge it ------------------------------------------------


def wanted_of(pattern: Pattern) -> list[Stage]:
    """The stages that records of a match have."""
    return [stage for stage in pattern.stages if stage.contiguity not in (NOT_NEXT, NOT_FOLLOWED)]


def forbidden_behind(pattern: Pattern, stage: Stage) -> list[Stage]:
    """The stages that must not match between this stage and the next."""
    found: list[Stage] = []
    for later in pattern.stages[pattern.stages.index(stage) + 1 :]:
        if later.contiguity not in (NOT_NEXT, NOT_FOLLOWED):
            break
        found.append(later)
    return found


def assignments(pattern: Pattern, indices: Sequence[int]) -> list[Taken]:
    """Every way to give stages to these records that rule 1 allows."""
    found: list[Taken] = []
    wanted = wanted_of(pattern)

    def extend(stage: int, rest: Sequence[int], taken: Taken) -> None:
        if stage == len(wanted):
            if not rest:
                found.append(taken)
            return
        one = wanted[stage]
        counts = [count for count in range(one.least, len(rest) + 1) if one.most is None or count <= one.most]
        for count in [0, *counts] if one.is_optional else counts:
            extend(stage + 1, rest[count:], (*taken, *((number, stage) for number in rest[:count])))

    extend(0, indices, ())
    return found


def is_match(pattern: Pattern, events: Sequence[tuple[Any, int]], taken: Taken) -> bool:
    """Rules 2 to 6."""
    stages = wanted_of(pattern)
    names = [stage.name for stage in stages]

    def matched(count: int) -> Match:
        records: Match = {}
        for number, stage in taken[:count]:
            records.setdefault(names[stage], []).append(events[number][0])
        return records

    for at, (number, index) in enumerate(taken):
        stage = stages[index]
        if not stage.takes(events[number][0], matched(at)):
            return False
        if not at:
            continue
        before, before_index = taken[at - 1]
        stage_before = stages[before_index]
        if sum(one == before_index for _, one in taken[:at]) >= stage_before.least:
            for forbidden in forbidden_behind(pattern, stage_before):
                last = number if forbidden.contiguity == NOT_FOLLOWED else before + 1
                if any(forbidden.takes(events[one][0], matched(at)) for one in range(before + 1, last + 1)):
                    return False
        between = range(before + 1, number)
        contiguity = stage.inner if before_index == index else stage.contiguity
        if contiguity == STRICT and between:
            return False
        if contiguity == RELAXED and any(stage.takes(events[other][0], matched(at)) for other in between):
            return False
        if before_index == index and any(stage.ends(events[other][0]) for other in range(before + 1, number + 1)):
            return False
    duration = events[taken[-1][0]][1] - events[taken[0][0]][1]
    return pattern.within_ms is None or duration < pattern.within_ms


def brute_force(pattern: Pattern, events: Sequence[tuple[Any, int]]) -> list[Taken]:
    """All matches, in the order in which they are found, without skipped ones."""
    every = [
        taken
        for size in range(1, len(events) + 1)
        for indices in combinations(range(len(events)), size)
        for taken in assignments(pattern, indices)
        if is_match(pattern, events, taken)
    ]
    every.sort(key=lambda taken: (taken[-1][0], [number for number, _ in taken], [stage for _, stage in taken]))
    if pattern.skip == NO_SKIP:
        return every
    kept, pruned = [], -1
    for taken in every:
        if taken[0][0] > pruned:
            kept.append(taken)
            pruned = taken[0][0] if pattern.skip == SKIP_TO_NEXT else taken[-1][0]
    return kept


def records_of(pattern: Pattern, events: Sequence[tuple[Any, int]], taken: Taken) -> Match:
    records: Match = {}
    for number, stage in taken:
        records.setdefault(wanted_of(pattern)[stage].name, []).append(events[number][0])
    return records


def run(pattern: Pattern, events: Sequence[tuple[Any, int]]) -> tuple[list[Match], list[tuple[int, Match]]]:
    """The matches and timeouts of the automaton; its state is written and read back before every record."""
    nfa, state = Nfa(pattern), State()
    found: list[Match] = []
    timed_out: list[tuple[int, Match]] = []
    for value, time_ms in events:
        state, matches, late = nfa.on_record(State.of(state.plain()), value, time_ms)
        found += matches
        timed_out += late
    return found, timed_out


def is_one_of(letters: str) -> Any:
    return lambda value: value[0] in letters


FORBIDDEN = [(), (), ("not_next",), ("not_followed_by",), ("not_next", "not_followed_by")]
LETTERS = st.sampled_from(["a", "b", "c", "ab", "abc", "bc"])


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    """Up to three stages of every kind."""
    pattern: Pattern | None = None
    for name in "xyz"[: draw(st.integers(1, 3))]:
        if pattern is None:
            pattern = Pattern.begin(name, skip=draw(st.sampled_from(SKIP_STRATEGIES)))
        else:
            if not pattern.stages[-1].is_optional:
                for forbidden in draw(st.sampled_from(FORBIDDEN)):
                    pattern = getattr(pattern, forbidden)(f"no {name} {forbidden}").where(is_one_of(draw(LETTERS)))
            pattern = draw(st.sampled_from([pattern.next, pattern.followed_by, pattern.followed_by_any]))(name)
        pattern = pattern.where(is_one_of(draw(LETTERS)))
        if draw(st.booleans()):
            pattern = draw(
                st.sampled_from([
                    pattern.one_or_more(), pattern.times(2), pattern.times(1, 2), pattern.times_or_more(2),
                    pattern.optional(), pattern.one_or_more().until(is_one_of("c")),
                    pattern.where_matched(lambda value, matched: len(matched) < 2 or value[0] != "b"),
                    pattern.or_where(is_one_of("c")),
                ])
            )  # fmt: skip
            if draw(st.booleans()):
                pattern = draw(st.sampled_from([pattern.consecutive, pattern.allow_combinations, pattern.optional]))()
    assert pattern is not None
    if all(stage.is_optional for stage in wanted_of(pattern)):
        pattern = pattern.followed_by("last").where(is_one_of("a"))
    return pattern if draw(st.booleans()) else pattern.within(draw(st.integers(1, 6)))


EVENTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), min_size=4, max_size=7)


def timed(drawn: list[tuple[str, int]]) -> list[tuple[Any, int]]:
    """Records that are all different, each some time after the one before."""
    time_ms, events = 0, []
    for number, (letter, later) in enumerate(drawn):
        time_ms += later
        events.append(((letter, number), time_ms))
    return events


@settings(max_examples=120)
@given(patterns(), EVENTS)
def test_every_match_of_the_definition_is_found_once_and_in_order(
    pattern: Pattern, drawn: list[tuple[str, int]]
) -> None:
    """The automaton finds what an enumeration of all sequences finds."""
    events = timed(drawn)
    found, _ = run(pattern, events)
    assert found == [records_of(pattern, events, taken) for taken in brute_force(pattern, events)]


@given(EVENTS, st.integers(1, 5))
def test_what_has_begun_is_matched_or_timed_out(drawn: list[tuple[str, int]], within_ms: int) -> None:
    """Each a that is not followed by a b in time is timed out once, at its time plus the duration."""
    pattern = Pattern.begin("x").where(is_one_of("a")).followed_by("y").where(is_one_of("b")).within(within_ms)
    events = timed(drawn)
    nfa = Nfa(pattern)
    found, timed_out = run(pattern, [*events, (("c", -1), 1_000)])
    begun = {value: time_ms for value, time_ms in events if value[0] == "a"}
    matched = [match["x"][0] for match in found]

    assert sorted(matched + [match["x"][0] for _, match in timed_out]) == sorted(begun)
    assert all(time_ms == begun[match["x"][0]] + within_ms for time_ms, match in timed_out)
    assert nfa.on_time(State(), 10**9) == (State(), [])


def letters(text: str) -> list[tuple[Any, int]]:
    return [((letter, number), number) for number, letter in enumerate(text)]


def matches(pattern: Pattern, text: str) -> list[str]:
    """The matches as text: stages apart by a bar, records by their numbers."""
    found, _ = run(pattern, letters(text))
    return ["|".join("".join(str(number) for _, number in records) for records in match.values()) for match in found]


A_B = Pattern.begin("a").where(is_one_of("a"))


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (A_B.next("b").where(is_one_of("b")), []),
        (A_B.followed_by("b").where(is_one_of("b")), ["0|2"]),
        (A_B.followed_by_any("b").where(is_one_of("b")), ["0|2", "0|3"]),
    ],
)
def test_what_may_lie_between_two_stages(pattern: Pattern, wanted: list[str]) -> None:
    """In a c b1 b2, next finds nothing, followed_by the first b, followed_by_any both."""
    assert matches(pattern, "acbb") == wanted


@pytest.mark.parametrize(
    ("inner", "wanted"),
    [
        (lambda pattern: pattern, ["023|4", "02|4", "0|4"]),
        (lambda pattern: pattern.consecutive(), ["0|4"]),
        (lambda pattern: pattern.allow_combinations(), ["023|4", "02|4", "03|4", "0|4"]),
    ],
)
def test_what_may_lie_between_two_records_of_a_stage(inner: Any, wanted: list[str]) -> None:
    """In a1 c a2 a3 b, from a1 on: the next a always, only at once, or any."""
    pattern = inner(A_B.one_or_more()).followed_by("b").where(is_one_of("b"))
    found = [one for one in matches(pattern, "acaab") if one.startswith("0")]
    assert found == wanted


@pytest.mark.parametrize(
    ("many", "wanted"),
    [
        (lambda pattern: pattern.times(2), ["01|3", "12|3"]),
        (lambda pattern: pattern.times(1, 2), ["01|3", "0|3", "12|3", "1|3", "2|3"]),
        (lambda pattern: pattern.times_or_more(3), ["012|3"]),
        (lambda pattern: pattern.times(2).optional(), ["01|3", "12|3", "3"]),
    ],
)
def test_so_many_records_and_no_fewer(many: Any, wanted: list[str]) -> None:
    """Of a1 a2 a3 b, the next stage begins when there are enough, and without any only if that is allowed."""
    assert matches(many(A_B).followed_by("b").where(is_one_of("b")), "aaab") == wanted


B, C, D = is_one_of("b"), is_one_of("c"), is_one_of("d")
NO_B = A_B.not_followed_by("no b").where(B)
NOT_B_NEXT = A_B.not_next("no b").where(B)


@pytest.mark.parametrize(
    ("pattern", "text", "wanted"),
    [
        (NOT_B_NEXT.followed_by_any("c").where(C).followed_by("d").where(D), "acbcd", ["0|1|4", "0|3|4"]),
        (NOT_B_NEXT.followed_by("c").where(C).followed_by("d").where(D), "abccd", []),
        (NO_B.followed_by_any("c").where(C).followed_by("d").where(D), "acbcd", ["0|1|4"]),
        (NO_B.followed_by_any("c").where(C).optional().followed_by("d").where(D), "acbcd", ["0|1|4"]),
        (NO_B.followed_by_any("c").where(C).optional(), "acbc", ["0", "0|1"]),
        (NO_B.followed_by_any("c").where(C).times(2).optional().followed_by("d").where(D), "acbcd", ["0|13|4"]),
        (NO_B.followed_by("c").where(C).followed_by("d").where(D), "abcacd", ["3|4|5"]),
    ],
)
def test_what_must_not_lie_between_two_stages(pattern: Pattern, text: str, wanted: list[str]) -> None:
    """Cases that Flink's tests decide (``NotPatternITCase``)."""
    assert matches(pattern, text) == wanted


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda b: b.one_or_more().not_followed_by("no c").where(C), ["567", "56", "5", "67", "6", "7"]),
        (lambda b: b.one_or_more().allow_combinations().not_followed_by("no c").where(C),
         ["567", "56", "57", "5", "67", "6", "7"]),
        (lambda b: b.one_or_more().not_next("no c").where(C), ["567", "56", "5", "67", "6", "7"]),
        (lambda b: b.times(4).not_followed_by("no c").where(C), ["1235", "2356", "3567"]),
    ],
)  # fmt: skip
def test_what_is_forbidden_behind_a_stage_of_several(make: Any, wanted: list[str]) -> None:
    """A forbidden record ends a match that has enough records, but no shorter one; not_next only directly after."""
    begun = make(A_B.followed_by_any("b").where(B))
    found = matches(begun.followed_by("d").where(D), "abbbcbbbd")
    if begun.stages[-1].contiguity == NOT_NEXT:
        # A match that stopped at the first or second b is followed by the third b, and goes on over the c.
        assert [one for one in found if one.split("|")[1] in wanted] == [f"0|{one}|8" for one in wanted]
        assert "0|123|8" not in found
        assert "0|12|8" in found
    else:
        assert found == [f"0|{one}|8" for one in wanted]


def test_what_a_forbidden_record_has_ended_is_not_timed_out() -> None:
    """It has ended, as a match would have."""
    pattern = NO_B.followed_by("c").where(C).within(5)
    assert run(pattern, [*letters("aab"), (("d", 9), 100)])[1] == []
    assert [match for _, match in run(pattern, [*letters("aba"), (("d", 9), 100)])[1]] == [{"a": [("a", 2)]}]


def test_until_ends_a_stage_for_good() -> None:
    """Later records do not belong to it, nor does the record that ends it; the next stage may still come."""
    ended = A_B.one_or_more().until(is_one_of("c"))
    assert matches(ended, "aca") == ["0", "2"]
    assert matches(ended.followed_by("b").where(is_one_of("b")), "acab") == ["0|3", "2|3"]
    assert matches(Pattern.begin("x").one_or_more().until(is_one_of("c")), "cac") == ["1"]


@pytest.mark.parametrize(
    ("skip", "wanted"),
    [("no_skip", ["0", "01", "1", "012", "12", "2"]), ("skip_to_next", ["0", "1", "2"]),
     ("skip_past_last_event", ["0", "1", "2"])],
)  # fmt: skip
def test_skipping(skip: str, wanted: list[str]) -> None:
    """Of a+ in a1 a2 a3, skipping leaves one match for each beginning."""
    assert matches(Pattern.begin("a", skip=skip).where(is_one_of("a")).one_or_more(), "aaa") == wanted


def test_skipping_inside_and_behind_differ() -> None:
    """Of a followed by any b in a1 a2 b1 b2, the next beginning is inside the first match, not after it."""
    for skip, wanted in (("skip_to_next", ["0|2", "1|2"]), ("skip_past_last_event", ["0|2"])):
        pattern = Pattern.begin("a", skip=skip).where(is_one_of("a")).followed_by_any("b").where(is_one_of("b"))
        assert matches(pattern, "aabb") == wanted


def test_what_was_skipped_is_forgotten_and_not_timed_out() -> None:
    """A beginning inside a match that was found neither goes on nor runs out of time."""
    pattern = Pattern.begin("a", skip="skip_past_last_event").where(is_one_of("a"))
    pattern = pattern.followed_by_any("b").where(is_one_of("b")).within(5)
    assert run(pattern, [*letters("aab"), (("c", 9), 100)])[1] == []
    nfa, state = Nfa(pattern), State()
    for value, time_ms in letters("aab"):
        state, _, _ = nfa.on_record(state, value, time_ms)
    assert state.partials == ()


def test_contiguities_are_all_there_are() -> None:
    """The enumeration knows every contiguity that a stage can have."""
    made = A_B.next("b").followed_by("c").followed_by_any("d").not_next("e").not_followed_by("f")
    assert [stage.contiguity for stage in made.stages[1:]] == [STRICT, RELAXED, ANY, NOT_NEXT, NOT_FOLLOWED]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Nfa(Pattern.begin("a").optional()), "every stage is optional"),
        (lambda: Pattern.begin(""), "not empty"),
        (lambda: Pattern.begin("a", skip="some"), "skip must be one of"),
        (lambda: Pattern.begin("a").next("a"), "two stages"),
        (lambda: Pattern.begin("a").where(3), "takes a function"),  # type: ignore[arg-type]
        (lambda: Pattern.begin("a").times(0), "no number of records"),
        (lambda: Pattern.begin("a").times(3, 2), "no number of records"),
        (lambda: Pattern.begin("a").until(bool), "one_or_more"),
        (lambda: Pattern.begin("a").within(0), "at least 1"),
        (lambda: Pattern.begin("a").within(2**63), "at most"),
        (lambda: Nfa(Pattern.begin("a").not_followed_by("b").within(5)), "timeout_tag"),
        (lambda: Nfa(Pattern.begin("a").not_next("b")), "still to come"),
        (lambda: Nfa(Pattern.begin("a").optional().followed_by("c").optional().next("d").optional()), "optional"),
        (lambda: Pattern.begin("a").optional().not_next("b"), "which is optional"),
        (lambda: Pattern.begin("a").not_next("b").optional(), "how many records"),
        (lambda: Pattern.begin("a").not_next("b").one_or_more(), "how many records"),
        (lambda: Pattern.begin("a").not_next("b").times(2), "how many records"),
        (lambda: Pattern.begin("a").not_next("b").times_or_more(2), "how many records"),
        (lambda: Pattern.begin("a").not_followed_by("b").consecutive(), "how many records"),
        (lambda: Pattern.begin("a").not_followed_by("b").allow_combinations(), "how many records"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_refused(make: Any, message: str) -> None:
    """Each is refused where it is written, and the error says what is wrong."""
    with pytest.raises(ConfigurationError, match=message):
        make()
