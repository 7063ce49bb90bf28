"""The automaton that finds the matches of a pattern, one record at a time (a pure machine).

Theory of operation.

* A *partial match* is an ascending sequence of records with their stages, and the *transitions* that are still open
  from its last record: to the same stage again, to the next stage, and over optional stages to later ones.
* Each record is shown to each open transition. If its stage takes the record, there is one more partial match. The
  contiguity decides when the transition closes: strict after one record, relaxed after the first record that it took,
  any never. A partial match without open transitions is forgotten.
* No transition leads to a stage that forbids (``not_next``, ``not_followed_by``). Such a stage guards the transition
  after it: if it takes a record, every partial match with that transition open ends.
* So each match is made exactly once, from the one partial match that lacks only its last record.
* A complete partial match is emitted as a match, and may go on; its stage and count tell whether it was emitted.
* After a match the skip strategy may prune partial matches that began at or before some number; see :class:`Pattern`.
* Time: a partial match times out when a record, or event time itself, is ``within`` or more later than its beginning.

State is plain: a list of partial matches in the order in which they began, each with its own copy of its records. A
shared buffer would need less space, but could be inconsistent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from operators.patterns.sequence import ANY, NO_SKIP, NOT_FOLLOWED, RELAXED, SKIP_TO_NEXT, STRICT, Pattern, Stage

Match = dict[str, list[Any]]

_BEFORE_ALL = -1


class Partial(NamedTuple):
    """``stage``: the stage of the last record, by index; ``size``: how many records that stage has; ``open``: indices
    of the stages to which transitions are open; ``taken``: (number, stage, record) of each record."""

    start_ms: int
    stage: int
    size: int
    open: tuple[int, ...]
    taken: tuple[tuple[int, int, Any], ...]

    @property
    def first(self) -> int:
        """The number of the first record."""
        return self.taken[0][0]

    @property
    def order(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The sort key of partial matches."""
        return tuple(number for number, _, _ in self.taken), tuple(stage for _, stage, _ in self.taken)


class State(NamedTuple):
    """The state after the records so far. ``pruned``: no match may begin at or before this number any more."""

    next_number: int = 0
    pruned: int = _BEFORE_ALL
    partials: tuple[Partial, ...] = ()

    def plain(self) -> list[Any]:
        """As a value of state."""
        return [self.next_number, self.pruned, [tuple(partial) for partial in self.partials]]

    @classmethod
    def of(cls, plain: Any) -> State:
        """From a value of state; ``None`` is the beginning."""
        if plain is None:
            return cls()
        next_number, pruned, partials = plain
        return cls(next_number, pruned, tuple(Partial(*partial) for partial in partials))


class Nfa:
    """Finds the matches of ``pattern``."""

    def __init__(self, pattern: Pattern) -> None:
        pattern.check()
        self._pattern = pattern
        self._stages = [stage for stage in pattern.stages if not stage.is_forbidden]
        self._guards = _guards_behind(pattern.stages)
        """By the number of a stage: the forbidden stages between it and the next one."""
        self._after = [self._reachable(index + 1) for index in range(-1, len(self._stages))]
        """By the number of a stage, from 1: the stages that may follow it; 0 is before the first."""
        last = len(self._stages) - 1
        self._may_end = [all(stage.is_optional for stage in self._stages[index + 1 :]) for index in range(last + 1)]

    def _reachable(self, index: int) -> tuple[int, ...]:
        reachable = []
        while index < len(self._stages):
            reachable.append(index)
            if not self._stages[index].is_optional:
                break
            index += 1
        return tuple(reachable)

    # --- events -------------------------------------------------------------------------------------------------------

    def on_record(self, state: State, value: Any, time_ms: int) -> tuple[State, list[Match], list[tuple[int, Match]]]:
        """The next record; its time may not be below the previous one. Returns the new state, the completed matches,
        and the timed-out partial matches as :meth:`on_time` does."""
        state, timed_out = self.on_time(state, time_ms)
        number = state.next_number
        kept: list[Partial] = []
        found: list[Partial] = []
        made: list[Partial] = []
        for partial in state.partials:
            left = self._show(partial, number, value, made)
            if left:
                kept.append(partial if left == partial.open else partial._replace(open=left))
        for index in self._after[0]:
            if self._stages[index].takes(value, {}):
                made.append(self._partial(time_ms, index, 1, ((number, index, value),)))
        for partial in made:
            if self._is_match(partial):
                found.append(partial)
        kept += [partial for partial in made if partial.open]
        found.sort(key=lambda partial: partial.order)
        pruned, matches = state.pruned, []
        for partial in found:
            if self._pattern.skip == NO_SKIP:
                matches.append(self._records(partial))
            elif partial.first > pruned:
                matches.append(self._records(partial))
                pruned = partial.first if self._pattern.skip == SKIP_TO_NEXT else number
        alive = tuple(sorted((one for one in kept if one.first > pruned), key=lambda one: one.order))
        return State(number + 1, pruned, alive), matches, timed_out

    def on_time(self, state: State, time_ms: int) -> tuple[State, list[tuple[int, Match]]]:
        """Event time has advanced. Returns the new state and the timed-out partial matches, each with its time; not
        those that were emitted as matches."""
        within_ms = self._pattern.within_ms
        if within_ms is None:
            return state, []
        over = [partial for partial in state.partials if time_ms - partial.start_ms >= within_ms]
        if not over:
            return state, []
        alive = tuple(partial for partial in state.partials if time_ms - partial.start_ms < within_ms)
        timed_out = [
            (partial.start_ms + within_ms, self._records(partial)) for partial in over if not self._is_match(partial)
        ]
        return state._replace(partials=alive), timed_out

    # --- inside -------------------------------------------------------------------------------------------------------

    def _show(self, partial: Partial, number: int, value: Any, made: list[Partial]) -> tuple[int, ...]:
        """Show a record to the open transitions of a partial match; returns which stay open."""
        matched: Match | None = None
        left = []
        guards = self._guards[partial.stage]
        if guards and partial.size >= self._stages[partial.stage].least:
            matched = self._records(partial)
            is_next = number == partial.taken[-1][0] + 1
            for guard in guards:
                if (is_next or guard.contiguity == NOT_FOLLOWED) and guard.takes(value, matched):
                    return ()
        for target in partial.open:
            stage = self._stages[target]
            is_same = target == partial.stage
            contiguity = stage.inner if is_same else stage.contiguity
            if is_same and stage.ends(value):
                continue
            if matched is None:
                matched = self._records(partial)
            takes = stage.takes(value, matched)
            if takes:
                count = partial.size + 1 if is_same else 1
                made.append(self._partial(partial.start_ms, target, count, (*partial.taken, (number, target, value))))
            if contiguity == ANY or (contiguity == RELAXED and not takes):
                left.append(target)
            else:
                assert takes or contiguity == STRICT, contiguity
        return tuple(left)

    def _partial(self, start_ms: int, index: int, count: int, taken: tuple[tuple[int, int, Any], ...]) -> Partial:
        stage = self._stages[index]
        again = (index,) if stage.most is None or count < stage.most else ()
        after = self._after[index + 1] if count >= stage.least else ()
        return Partial(start_ms, index, count, (*again, *after), taken)

    def _is_match(self, partial: Partial) -> bool:
        return self._may_end[partial.stage] and partial.size >= self._stages[partial.stage].least

    def _records(self, partial: Partial) -> Match:
        records: Match = {}
        for _, stage, value in partial.taken:
            records.setdefault(self._stages[stage].name, []).append(value)
        return records


def _guards_behind(stages: tuple[Stage, ...]) -> list[tuple[Stage, ...]]:
    guards: list[tuple[Stage, ...]] = []
    for stage in stages:
        if stage.is_forbidden:
            guards[-1] = (*guards[-1], stage)
        else:
            guards.append(())
    return guards
