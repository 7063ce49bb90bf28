"""The story of a run as it is read: steps, which is how a run is told, and the few that stay of many.

A *step* is the action of one task (or the job manager, or a process) at one instant: it took a record, changed the
output, sent an element on. Each step keeps the numbers of its trace events, so that the step at which two runs part can
be marked, and a picture drawn. :mod:`engine.explore.story.teller` makes the steps.

A story is kept short: when there are many steps, those that only pass records on are summed up, more of them the
farther they are from important steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.runtime.kernel import START_NS

MANAGER, PROCESS, CHANCE, USER = "job manager", "process", "fault", "user"
"""Actors besides tasks."""

CRASH, FAULT, RESTORE, COMMIT, COMPLETE, ABORT, TRIGGER, SNAPSHOT, BARRIER, RECORD, END = (
    "crash", "fault", "restore", "commit", "complete", "abort", "trigger", "snapshot", "barrier", "record", "end",
)  # fmt: skip
"""The subject of a step; of several, the first in this order."""

KINDS = (CRASH, FAULT, RESTORE, COMMIT, COMPLETE, ABORT, TRIGGER, SNAPSHOT, BARRIER, RECORD, END)
_MATTER = (CRASH, FAULT, RESTORE, COMMIT, COMPLETE, ABORT)
_PLURAL = {"acknowledges": "acknowledge", "takes its snapshot of": "take their snapshots of"}

MARK = "→"


@dataclass(frozen=True, slots=True)
class Arrow:
    """Something sent from one step to another. ``element`` identifies it; ``label`` names it."""

    element: tuple[int, int, int, int]
    label: str
    is_barrier: bool


@dataclass(slots=True)
class StoryStep:
    """``phrases``: verbs and their objects, in order; ``first`` and ``end``: the numbers of the step's trace events;
    ``sent`` and ``taken``: arrows that begin and end here; ``dies``: an actor dies here."""

    number: int
    time_ns: int
    actors: list[str]
    kind: str
    phrases: list[tuple[str, list[str]]]
    first: int
    end: int
    sent: list[Arrow] = field(default_factory=list)
    taken: list[Arrow] = field(default_factory=list)
    dies: bool = False

    @property
    def text(self) -> str:
        """The actor and its action."""
        blocked, unblocked = self._objects("blocks"), self._objects("unblocks")
        said = []
        for verb, objects in self.phrases:
            # A channel that is blocked and unblocked at once has delayed no record.
            passing = unblocked if verb == "blocks" else blocked if verb == "unblocks" else ()
            shown = [one for one in objects if one not in passing]
            if shown or not objects:
                word = _PLURAL.get(verb, verb) if len(self.actors) > 1 else verb
                said.append(f"{word} {', '.join(shown)}" if shown else word)
        return f"{', '.join(self.actors)}: {', '.join(said)}" if self.actors else ", ".join(said)

    @property
    def blocks(self) -> bool:
        """Whether a channel is blocked here, and stays so."""
        unblocked = self._objects("unblocks")
        return any(one not in unblocked for one in self._objects("blocks"))

    def _objects(self, verb: str) -> list[str]:
        return [one for other, objects in self.phrases if other == verb for one in objects]

    def say(self, verb: str, what: str) -> None:
        """Add a phrase, or only its object when the verb before was the same."""
        if self.phrases and self.phrases[-1][0] == verb and what:
            if what not in self.phrases[-1][1]:
                self.phrases[-1][1].append(what)
        elif (verb, [what] if what else []) not in self.phrases:
            self.phrases.append((verb, [what] if what else []))


@dataclass(frozen=True, slots=True)
class Story:
    """All steps of a run, in order. ``actors`` in the order of the plan; ``distinguishing``: the number of the step at
    which the nearest passing run differs."""

    steps: tuple[StoryStep, ...]
    actors: tuple[str, ...]
    distinguishing: int | None = None

    def marked(self, event: int | None) -> Story:
        """The story, with a mark at the step of trace event number ``event``, or of the first one after it."""
        at = None if event is None else next((one.number for one in self.steps if one.end > event), None)
        return Story(self.steps, self.actors, at)

    def lines(self, limit: int = 60) -> list[str]:
        """One line per step, about ``limit`` at most: beyond it, steps that only pass records on are summed up."""
        lines = []
        width = len(str(len(self.steps)))
        shown = [(step, time_text(step.time_ns)) for step in self.shortened(limit)]
        widest = max((len(time) for _, time in shown), default=0)
        for step, time in shown:
            mark = MARK if step.number == self.distinguishing else " "
            number = str(step.number) if step.number else "…"
            lines.append(f"{mark} {number:>{width}}  {time:<{max(9, widest)}} {step.text}")
        return lines

    def shortened(self, limit: int) -> list[StoryStep]:
        """At most ``limit`` of the steps, the most important ones, and between them steps without a number that sum up
        the omitted ones."""
        kept = self._kept(limit)
        shown: list[StoryStep] = []
        skipped: list[StoryStep] = []
        for step in self.steps:
            if step.number in kept:
                shown += _summary(skipped)
                skipped = []
                shown.append(step)
            else:
                skipped.append(step)
        return shown + _summary(skipped)

    def _kept(self, limit: int) -> frozenset[int]:
        if len(self.steps) <= limit:
            return frozenset(step.number for step in self.steps)
        matters = [at for at, step in enumerate(self.steps) if step.kind in _MATTER or self._is_marked(step)]

        def rank(at: int) -> tuple[int, int, int]:
            step = self.steps[at]
            distance = min((abs(at - other) for other in matters), default=0)
            return (0 if self._is_marked(step) else 1 + (distance > 0), distance + 2 * KINDS.index(step.kind), at)

        chosen = sorted(range(len(self.steps)), key=rank)[:limit]
        return frozenset(self.steps[at].number for at in chosen)

    def _is_marked(self, step: StoryStep) -> bool:
        return step.number == self.distinguishing

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _summary(skipped: Sequence[StoryStep]) -> list[StoryStep]:
    """One step without number and actor that replaces several."""
    if not skipped:
        return []
    taken = sum(1 for step in skipped for arrow in step.taken if not arrow.is_barrier)
    text = f"{len(skipped)} further step{'' if len(skipped) == 1 else 's'}"
    phrases: list[tuple[str, list[str]]] = [(text, [])]
    if taken:
        phrases.append((f"records taken {'once' if taken == 1 else f'{taken} times'}", []))
    return [StoryStep(0, skipped[0].time_ns, [], RECORD, phrases, skipped[0].first, skipped[-1].end)]


def time_text(time_ns: int) -> str:
    """Virtual time since the start, exact: ``+12.5us``."""
    passed = time_ns - START_NS
    for factor, unit in ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")):
        if passed >= factor:
            return f"+{f'{passed / factor:.6f}'.rstrip('0').rstrip('.')}{unit}"
    return f"+{passed}ns"
