"""The time of a fault: exactly, at the n-th opportunity of its kind, or by chance.

Kinds that share their opportunities (for instance all faults of messages) are one family. At each opportunity of a
family, exact faults count that visit, and then chance has its turn. A fault by chance is noted as the exact
fault that would have struck there, so that a run can be repeated without any chance.

Chance is drawn as a distance, kind by kind: the number of opportunities that pass unharmed, equally likely between
zero and twice the mean. So a run without a fault costs one draw for each kind, not one for each opportunity.
One strike in four is soon followed by another of its kind: the second hits the recovery from the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from engine.faults.fault import Fault, FaultMix
from engine.graph.plan import ExecutionPlan
from engine.runtime.kernel import START_NS, ChoiceRecorder, Kernel

_MILLION = 1_000_000
_ALONE, _SOON = 4, 64
"""One strike in so many is followed by another within this part of the usual distance."""

STREAM = "faults"
"""The stream of choices from which faults are drawn."""


class Struck:
    """The faults that have struck in one case, of all families: exact, in order; and whether chance may add more."""

    def __init__(self, mix: FaultMix, choices: ChoiceRecorder) -> None:
        self.faults: list[Fault] = []
        self._most = mix.most
        self._by_chance = 0
        self._choices = choices
        self._healed = False
        self.may_by_chance = mix.most > 0
        """Whether one more may strike by chance: ``most`` is not reached, and the time of healing has not come."""
        self.kernel: Kernel | None = None
        """Of the running process."""

    @property
    def now_ns(self) -> int:
        """Since the start of the process; 0 before the first one."""
        return 0 if self.kernel is None else self.kernel.now_ns - START_NS

    def heal(self) -> None:
        self._healed = True
        self.may_by_chance = False

    def draw(self, bound: int) -> int:
        """A choice ``0 .. bound-1`` about faults."""
        return self._choices.draw(STREAM, bound)

    def note(self, fault: Fault, *, by_chance: bool = False) -> None:
        self.faults.append(fault)
        self._by_chance += by_chance
        self.may_by_chance = not self._healed and self._by_chance < self._most


class Opportunities:
    """One family of kinds in one case."""

    def __init__(
        self,
        kinds: Sequence[str],
        faults: Iterable[Fault],
        mix: FaultMix,
        struck: Struck,
        *,
        fits: Callable[[Fault, str], bool] | None = None,
        details: Callable[[Fault], Fault] | None = None,
    ) -> None:
        """``fits``: whether an exact fault matches a name; by default its target decides. ``details``: draws the other
        fields of a fault by chance: how long, how much. Faults that strike at an instant or at a named point have no
        opportunities and are not handled here."""
        self._exact = [fault for fault in faults if fault.kind in kinds and fault.at_ns is None and fault.point is None]
        self._seen = [0] * len(self._exact)
        self._fits = fits
        self._details = details
        self._chances = {kind: mix.per_million[kind] for kind in kinds if mix.most and mix.per_million.get(kind)}
        self._struck = struck
        self._left: dict[str, int] = {}
        """By drawn kind: the number of opportunities before it strikes by chance."""
        self._visits: dict[str, int] = {}
        self._kinds_among: dict[tuple[str, ...], tuple[str, ...]] = {}
        """For a set of kinds, those with a chance: places ask for the same few sets again and again."""
        self.is_armed = bool(self._exact) or bool(self._chances)

    def passes(self, count: int, among: tuple[str, ...]) -> bool:
        """Whether chance lets the next ``count`` opportunities pass unharmed, whatever their names; if so, they count
        as passed. For families without exact faults: those would count each one."""
        if not self._struck.may_by_chance:
            return True
        left = self._left
        kinds = self._kinds_among.get(among)
        if kinds is None:
            kinds = self._kinds_among[among] = tuple(kind for kind in self._chances if kind in among)
        for kind in kinds:
            if left.get(kind, -1) < count:
                return False
        for kind in kinds:
            left[kind] -= count
        return True

    @property
    def calm(self) -> int:
        """How many opportunities of any kinds chance lets pass unharmed for certain."""
        left = self._left
        return min(left.values()) if len(left) == len(self._chances) else 0

    def strike(self, name: str, among: Sequence[str] | None = None) -> Fault | None:
        """``name`` has an opportunity: returns the fault that strikes it, if any. ``among``: the possible kinds."""
        found = self._exactly(name, among) if self._exact else None
        if not self._chances or not self._struck.may_by_chance:
            return found
        self._visits[name] = number = self._visits.get(name, 0) + 1
        kind = None if found is not None else self._by_chance(among)
        if kind is not None:
            found = Fault(kind, plain_target(name), number=number)
            if self._details is not None:
                found = self._details(found)
            self._struck.note(found, by_chance=True)
        return found

    def _exactly(self, name: str, among: Sequence[str] | None) -> Fault | None:
        found = None
        for at, fault in enumerate(self._exact):
            if among is not None and fault.kind not in among:
                continue
            if fault.hits(name) if self._fits is None else self._fits(fault, name):
                self._seen[at] += 1
                if found is None and self._seen[at] == fault.number:
                    found = fault
        if found is not None:
            self._struck.note(found)
        return found

    def _by_chance(self, among: Sequence[str] | None) -> str | None:
        struck, left = self._struck, self._left
        if not struck.may_by_chance:
            return None
        found = None
        for kind, chance in self._chances.items():
            if among is not None and kind not in among:
                continue
            if kind not in left:
                left[kind] = struck.draw(_distance(chance))
            if left[kind]:
                left[kind] -= 1
            elif found is None:
                # If another kind is due too, it waits for the next opportunity.
                found = kind
        if found is not None:
            del left[found]
            if struck.draw(_ALONE) == 0:
                left[found] = struck.draw(max(1, _distance(self._chances[found]) // _SOON))
        return found

    @property
    def unused(self) -> tuple[Fault, ...]:
        return tuple(fault for fault, seen in zip(self._exact, self._seen, strict=True) if seen < fault.number)


def _distance(chance: int) -> int:
    """The bound of distances at a chance in millionths: twice the mean."""
    return max(1, 2 * _MILLION // chance)


def plain_target(name: str) -> str:
    """A name as the target of a fault: characters with a meaning in the text form or in a shell pattern are replaced by
    one for any character."""
    return "".join("?" if character in "@#~=*" else character for character in name).strip()


class Windows:
    """Faults that last for a while, as a function of time alone: all questions at one instant get the same answer, in
    any number and order. For this reason a fault by chance begins one ns later."""

    def __init__(self, kinds: Sequence[str], faults: Iterable[Fault], struck: Struck) -> None:
        self._struck = struck
        self._windows = [fault for fault in faults if fault.kind in kinds and fault.at_ns is not None]
        self._noted: list[Fault] = []
        self.is_armed = bool(self._windows)

    def begin(self, fault: Fault, target: str, now_ns: int) -> None:
        """Add a fault that is noted already: it begins for ``target`` after this instant, or at its own ``at_ns``."""
        window = replace(fault, target=target, at_ns=now_ns + 1 if fault.at_ns is None else fault.at_ns, number=1)
        self._windows.append(window)
        self._noted.append(window)
        self.is_armed = True

    def in_force(self, kind: str, names: Iterable[str], now_ns: int) -> Fault | None:
        """The first fault of a kind in force for one of these names; ``now_ns`` since the start of the case."""
        names = tuple(names)
        for fault in self._windows:
            assert fault.at_ns is not None, fault
            if fault.kind == kind and fault.at_ns <= now_ns < fault.at_ns + fault.for_ns and hits_any(fault, names):
                self.strikes(fault)
                return fault
        return None

    def begun(self, kind: str, names: Iterable[str], now_ns: int) -> list[Fault]:
        """All faults of a kind that have begun for one of these names, with or without a duration."""
        names = tuple(names)
        found = [fault for fault in self.due(kind, now_ns) if hits_any(fault, names)]
        for fault in found:
            self.strikes(fault)
        return found

    def due(self, kind: str, now_ns: int) -> list[Fault]:
        """All faults of a kind whose instant has come, with or without an effect."""
        return [
            fault for fault in self._windows if fault.kind == kind and fault.at_ns is not None and fault.at_ns <= now_ns
        ]

    def strikes(self, fault: Fault) -> None:
        """It has had an effect: note it, once."""
        if not any(fault is one for one in self._noted):
            self._noted.append(fault)
            self._struck.note(fault)

    @property
    def unused(self) -> tuple[Fault, ...]:
        return tuple(fault for fault in self._windows if not any(fault is one for one in self._noted))


class Names:
    """Every name that a fault may use for a task (:meth:`engine.graph.plan.VertexPlan.names_of`) or a channel: those of
    its ends. An actor outside the job has one name."""

    def __init__(self, plan: ExecutionPlan | None = None) -> None:
        self._plan = plan
        self._tasks: dict[str, tuple[str, ...]] = {}
        self._channels: dict[str, tuple[str, ...]] = {}

    def _find_out(self, plan: ExecutionPlan) -> None:
        """Called late: most runs never need the names."""
        self._plan = None
        ids: dict[tuple[int, int], str] = {}
        for subtask in plan.subtasks:
            ids[subtask.vertex, subtask.subtask] = subtask.name
            names = plan.vertices[subtask.vertex].names_of(subtask.subtask)
            self._tasks[subtask.name] = tuple(dict.fromkeys((subtask.name, *names)))
        for channel in plan.channels:
            sender = ids[channel.sender_vertex, channel.sender_subtask]
            receiver = ids[channel.receiver_vertex, channel.receiver_subtask]
            self._channels[f"{sender}->{receiver}"] = tuple(
                f"{one}->{other}" for one in self._tasks[sender] for other in self._tasks[receiver]
            )

    def of_task(self, task: str) -> tuple[str, ...]:
        """Those of a task, its own first."""
        if self._plan is not None:
            self._find_out(self._plan)
        return self._tasks.get(task) or (task,)

    def of_channel(self, channel: str) -> tuple[str, ...]:
        """Those of a channel, its own first."""
        if self._plan is not None:
            self._find_out(self._plan)
        return self._channels.get(channel) or (channel,)


def hits_any(fault: Fault, names: Iterable[str]) -> bool:
    """Whether the target of a fault matches one of these names."""
    return any(fault.hits(name) for name in names)


_DURATIONS_NS = (500, 2_000, 10_000, 50_000)


def drawn_duration_ns(struck: Struck) -> int:
    """The duration of a fault by chance: from less than most steps of a small job to more than its checkpoints."""
    return _DURATIONS_NS[struck.draw(len(_DURATIONS_NS))]
