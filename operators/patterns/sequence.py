"""Patterns: the sequences of records to find.

(Flink CEP: ``Pattern``, ``Quantifier``, ``AfterMatchSkipStrategy``.)

A pattern is a value: methods return a new one. They change the newest stage::

    Pattern.begin("small").where(small).followed_by("big").where(big).times(2).within(60_000)

Meaning. Records of one key in their order have numbers 0, 1, 2, … A *match* is an ascending sequence of records, with a
stage for each, such that

1. the stages come in the order of the pattern, each as often as its quantifier says; only optional ones are left out;
2. each record satisfies the condition of its stage, and not its ``until``;
3. between a record and the next one of the match, with stage *b*, there may be

   * ``next``, ``consecutive``: no record;
   * ``followed_by``, and within a stage by default: no record that *b* would have taken (rule 2);
   * ``followed_by_any``, ``allow_combinations``: any records;

4. after a record of a stage with ``until``, up to and including its next one, no record satisfies ``until``;
5. the time from the first to the last record is less than ``within``;
6. after each record that may be the last of its stage, up to and including the next one of the match, no record
   satisfies a ``not_followed_by`` after the stage, and the very next record does not satisfy a ``not_next``.

Rule 6 treats a stage of several records as Flink does: once there are enough, a forbidden record ends the partial
match, even if the stage could have gone on. Unlike in Flink, a record that is both forbidden and wanted is always
forbidden, even at the end of the pattern. The contiguity of a stage also holds when optional stages before it are left
out. Any record may begin a match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.elements.errors import ConfigurationError

STRICT, RELAXED, ANY = "strict", "relaxed", "any"
NOT_NEXT, NOT_FOLLOWED = "not_next", "not_followed_by"
NO_SKIP, SKIP_TO_NEXT, SKIP_PAST_LAST_EVENT = "no_skip", "skip_to_next", "skip_past_last_event"
SKIP_STRATEGIES = (NO_SKIP, SKIP_TO_NEXT, SKIP_PAST_LAST_EVENT)

MAX_WITHIN_MS = 2**62
"""With this limit, a time plus a duration fits into 64 bits."""

Condition = Callable[[Any], Any]
Matched = Mapping[str, list[Any]]
"""The records of a match so far, by stage."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage. ``conditions``: alternatives, each a conjunction; ``against``: conditions that look at the match so
    far; ``contiguity``: which records may lie between the stage before and this one, or that this stage is forbidden;
    ``inner``: which may lie between two records of it."""

    name: str
    contiguity: str
    conditions: tuple[tuple[Condition, ...], ...] = ((),)
    against: tuple[Callable[[Any, Matched], Any], ...] = ()
    least: int = 1
    most: int | None = 1
    inner: str = RELAXED
    is_optional: bool = False
    until: Condition | None = None

    @property
    def is_forbidden(self) -> bool:
        """Whether it is a ``not_next`` or ``not_followed_by``."""
        return self.contiguity in (NOT_NEXT, NOT_FOLLOWED)

    def ends(self, value: Any) -> bool:
        """Whether a record satisfies ``until``."""
        return self.until is not None and bool(self.until(value))

    def takes(self, value: Any, matched: Matched) -> bool:
        """Whether the stage takes a record, after the records matched so far."""
        return (
            any(all(condition(value) for condition in together) for together in self.conditions)
            and not self.ends(value)
            and all(condition(value, matched) for condition in self.against)
        )


def _check_ms(value: object) -> None:
    if type(value) is not int or not 1 <= value <= MAX_WITHIN_MS:
        raise ConfigurationError(
            f"pattern: within takes a whole number of ms of at least 1 (and at most {MAX_WITHIN_MS}), got {value!r}"
        )


@dataclass(frozen=True, slots=True)
class Pattern:
    """A sequence of stages; its meaning is in the module. Begin with :meth:`begin`."""

    stages: tuple[Stage, ...]
    within_ms: int | None = None
    skip: str = NO_SKIP

    @classmethod
    def begin(cls, name: str, *, skip: str = NO_SKIP) -> Pattern:
        """The first stage. ``skip`` says which matches are left out after a match was found:

        ``no_skip``                no match;
        ``skip_to_next``           those that begin with the same record as the one found, or before it;
        ``skip_past_last_event``   those that begin before it or inside it.

        Among matches that end with the same record, the earlier beginning is found first; then the lesser list of
        numbers, then the lesser list of stages.
        """
        if skip not in SKIP_STRATEGIES:
            raise ConfigurationError(f"pattern: skip must be one of {', '.join(SKIP_STRATEGIES)}, got {skip!r}")
        return cls((), skip=skip)._then(name, RELAXED)

    def next(self, name: str) -> Pattern:
        """A stage directly after the one before."""
        return self._then(name, STRICT)

    def followed_by(self, name: str) -> Pattern:
        """A stage that begins with the next record that suits it."""
        return self._then(name, RELAXED)

    def followed_by_any(self, name: str) -> Pattern:
        """A stage that begins with any later record that suits it."""
        return self._then(name, ANY)

    def not_next(self, name: str) -> Pattern:
        """The very next record must not satisfy this stage."""
        return self._then(name, NOT_NEXT)

    def not_followed_by(self, name: str) -> Pattern:
        """No record may satisfy this stage until the next stage begins."""
        return self._then(name, NOT_FOLLOWED)

    def where(self, condition: Condition) -> Pattern:
        """Take only records for which ``condition(record)`` is true; further conditions must be true as well."""
        last = self.stages[-1]
        *before, together = last.conditions
        return self._with(conditions=(*before, (*together, _callable("where", condition))))

    def or_where(self, condition: Condition) -> Pattern:
        """Take also records for which ``condition(record)`` is true."""
        return self._with(conditions=(*self.stages[-1].conditions, (_callable("or_where", condition),)))

    def where_matched(self, condition: Callable[[Any, Matched], Any]) -> Pattern:
        """Take only records for which ``condition(record, matched)`` is true, where ``matched`` has the records of the
        match so far by stage (Flink: ``IterativeCondition``)."""
        return self._with(against=(*self.stages[-1].against, _callable("where_matched", condition)))

    def times(self, least: int, most: int | None = None) -> Pattern:
        """Exactly ``least`` records; with two numbers, ``least`` to ``most``."""
        most = least if most is None else most
        if type(least) is not int or type(most) is not int or not 1 <= least <= most:
            raise ConfigurationError(
                f"pattern: times({least!r}, {most!r}) is no number of records; optional() allows none"
            )
        return self._quantified("times", least=least, most=most)

    def times_or_more(self, least: int) -> Pattern:
        """``least`` records or more."""
        return self.times(least)._with(most=None)

    def one_or_more(self) -> Pattern:
        """One record or more."""
        return self._quantified("one_or_more", least=1, most=None)

    def optional(self) -> Pattern:
        """The stage may have no record."""
        return self._quantified("optional", is_optional=True)

    def consecutive(self) -> Pattern:
        """No other record may lie between the records of the stage."""
        return self._quantified("consecutive", inner=STRICT)

    def allow_combinations(self) -> Pattern:
        """Any records may lie between the records of the stage, even records that suit it."""
        return self._quantified("allow_combinations", inner=ANY)

    def until(self, condition: Condition) -> Pattern:
        """A stage of any number of records ends before the first record for which ``condition(record)`` is true."""
        if self.stages[-1].most is not None:
            raise ConfigurationError("pattern: until ends a stage that may go on for ever; call one_or_more() first")
        return self._with(until=_callable("until", condition))

    def within(self, duration_ms: int) -> Pattern:
        """From the first to the last record less than ``duration_ms`` may pass."""
        _check_ms(duration_ms)
        return replace(self, within_ms=duration_ms)

    def check(self) -> None:
        """Raises :class:`ConfigurationError` for a pattern that matches even without a record, or that ends with a
        forbidden stage, whose absence is never certain."""
        if all(stage.is_optional for stage in self.stages if not stage.is_forbidden):
            raise ConfigurationError("pattern: every stage is optional, so that no record at all would be a match")
        if self.stages[-1].is_forbidden:
            last = self.stages[-1]
            raise ConfigurationError(
                f"pattern: it ends with {last.contiguity}({last.name!r}), and something may always be still to come\n"
                "  fix: look for what shall not come with followed_by(...) and within(...), and take what timeout_tag="
                " gives; or say what ends the wait with a stage after it"
            )

    def text(self) -> str:
        """The stages without their conditions: these must be the same for partial matches of a checkpoint to go on."""
        return f"{self.skip} {self.within_ms} " + " ".join(
            f"{stage.contiguity}:{stage.name}[{stage.least},{stage.most}]{stage.inner}{'?' * stage.is_optional}"
            for stage in self.stages
        )

    def _then(self, name: str, contiguity: str) -> Pattern:
        if type(name) is not str or not name:
            raise ConfigurationError(f"pattern: the name of a stage is a str that is not empty, got {name!r}")
        if any(stage.name == name for stage in self.stages):
            raise ConfigurationError(f"pattern: two stages have the name {name!r}; give each its own")
        if contiguity in (NOT_NEXT, NOT_FOLLOWED) and self.stages[-1].is_optional:
            raise ConfigurationError(
                f"pattern: {contiguity}({name!r}) comes after {self.stages[-1].name!r}, which is optional: where it"
                " begins would be unclear\n  fix: make two patterns, one with that stage and one without it"
            )
        return replace(self, stages=(*self.stages, Stage(name, contiguity)))

    def _quantified(self, method: str, **changes: Any) -> Pattern:
        last = self.stages[-1]
        if last.is_forbidden:
            raise ConfigurationError(f"pattern: {method} says how many records; {last.name!r} is {last.contiguity}")
        return self._with(**changes)

    def _with(self, **changes: Any) -> Pattern:
        return replace(self, stages=(*self.stages[:-1], replace(self.stages[-1], **changes)))


def _callable(method: str, condition: Any) -> Any:
    if not callable(condition):
        raise ConfigurationError(f"pattern: {method} takes a function, got {condition!r}")
    return condition
