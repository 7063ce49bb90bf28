"""When a fault strikes: exactly, at the n-th opportunity of its kind, or by chance.

Kinds that have their opportunities in common (all that may befall a message, say) are one family. Each time a family
comes by a place, exact faults count that visit, and chance has its turn; what strikes by chance is noted as the exact
fault that would have struck there, so that a run can be repeated without any chance.

Chance is drawn as a distance, kind by kind: how many further opportunities pass by unharmed, equally likely between
none and twice the mean. A run in which nothing strikes so costs one draw for each kind, not one for each opportunity.
One strike in four is soon followed by another of its kind: who looks after the first one is hit by the second.
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
"""The stream of choices that faults are drawn from."""


class Struck:
    """What has struck in one case, shared by all families: exact faults, in order; and whether more may by chance."""

    def __init__(self, mix: FaultMix, choices: ChoiceRecorder) -> None:
        self.faults: list[Fault] = []
        self._most = mix.most
        self._by_chance = 0
        self._choices = choices
        self._healed = False
        self.may_by_chance = mix.most > 0
        """Whether one more may strike by chance: ``most`` is not reached, and the world is not healed."""
        self.kernel: Kernel | None = None
        """Of the process that runs."""

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

    def fingerprint(self) -> object:
        return (self._most - self._by_chance, self._healed)


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
        """``fits``: whether an exact fault is meant for a name; by default its target says so. ``details``: draws what
        else is to be known of a fault that strikes by chance: how long, how much. Faults that strike at an instant or
        at a named point have no opportunities and are left to others."""
        self._exact = [fault for fault in faults if fault.kind in kinds and fault.at_ns is None and fault.point is None]
        self._seen = [0] * len(self._exact)
        self._fits = fits
        self._details = details
        self._chances = {kind: mix.per_million[kind] for kind in kinds if mix.most and mix.per_million.get(kind)}
        self._struck = struck
        self._left: dict[str, int] = {}
        """By kind, if it is drawn: opportunities that pass before it strikes by chance."""
        self._visits: dict[str, int] = {}
        self._kinds_among: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Which of the kinds with a chance are among some: places ask for the same few again and again."""
        self.is_armed = bool(self._exact) or bool(self._chances)

    def passes(self, count: int, among: tuple[str, ...]) -> bool:
        """Whether chance lets the next ``count`` opportunities pass unharmed, whoever they are; if so, they have. For
        families without exact faults: they would count them."""
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

    def strike(self, name: str, among: Sequence[str] | None = None) -> Fault | None:
        """``name`` comes by: the fault that befalls it, if one does. ``among``: the kinds that are possible here."""
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
                # Another one whose turn it is as well waits for the next opportunity.
                found = kind
        if found is not None:
            del left[found]
            if struck.draw(_ALONE) == 0:
                left[found] = struck.draw(max(1, _distance(self._chances[found]) // _SOON))
        return found

    @property
    def unused(self) -> tuple[Fault, ...]:
        return tuple(fault for fault, seen in zip(self._exact, self._seen, strict=True) if seen < fault.number)

    def fingerprint(self) -> object:
        waiting = tuple(
            (str(fault), seen) for fault, seen in zip(self._exact, self._seen, strict=True) if seen < fault.number
        )
        return (waiting, tuple(self._left.items()))


def _distance(chance: int) -> int:
    """The bound of distances at a chance in millionths: twice the mean."""
    return max(1, 2 * _MILLION // chance)


def plain_target(name: str) -> str:
    """A name as the target of a fault: what its text form, or a shell pattern, gives a meaning stands for any
    character."""
    return "".join("?" if character in "@#~=*" else character for character in name).strip()


class Windows:
    """Faults that are in force for a while, as a function of time alone: whoever is asked at one instant gets one
    answer, however often and in whatever order. What chance begins, it begins one ns later, for the same reason."""

    def __init__(self, kinds: Sequence[str], faults: Iterable[Fault], struck: Struck) -> None:
        self._struck = struck
        self._windows = [fault for fault in faults if fault.kind in kinds and fault.at_ns is not None]
        self._noted: list[Fault] = []
        self.is_armed = bool(self._windows)

    def begin(self, fault: Fault, target: str, now_ns: int) -> None:
        """One more, noted already: it begins for ``target`` behind this instant, or when it says."""
        window = replace(fault, target=target, at_ns=now_ns + 1 if fault.at_ns is None else fault.at_ns, number=1)
        self._windows.append(window)
        self._noted.append(window)
        self.is_armed = True

    def in_force(self, kind: str, names: Iterable[str], now_ns: int) -> Fault | None:
        """The first of a kind that is in force for somebody of these names; ``now_ns`` since the start of the case."""
        names = tuple(names)
        for fault in self._windows:
            assert fault.at_ns is not None, fault
            if fault.kind == kind and fault.at_ns <= now_ns < fault.at_ns + fault.for_ns and hits_any(fault, names):
                self.strikes(fault)
                return fault
        return None

    def begun(self, kind: str, names: Iterable[str], now_ns: int) -> list[Fault]:
        """All of a kind that have begun for somebody of these names, whether they have a duration or not."""
        names = tuple(names)
        found = [fault for fault in self.due(kind, now_ns) if hits_any(fault, names)]
        for fault in found:
            self.strikes(fault)
        return found

    def due(self, kind: str, now_ns: int) -> list[Fault]:
        """All of a kind whose instant has come, whether they have had an effect or not."""
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

    def fingerprint(self) -> object:
        return (tuple(map(str, self._windows)), len(self._noted))


class Names:
    """Every name that a fault may use for a task (:meth:`engine.graph.plan.VertexPlan.names_of`) or a channel: those of
    its ends. Whoever is none of the job goes by one name."""

    def __init__(self, plan: ExecutionPlan | None = None) -> None:
        self._plan = plan
        self._tasks: dict[str, tuple[str, ...]] = {}
        self._channels: dict[str, tuple[str, ...]] = {}

    def _find_out(self, plan: ExecutionPlan) -> None:
        """In most runs nobody ever asks."""
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
    """Whether a fault is meant for somebody of these names."""
    return any(fault.hits(name) for name in names)


_DURATIONS_NS = (500, 2_000, 10_000, 50_000)


def drawn_duration_ns(struck: Struck) -> int:
    """How long a fault by chance lasts: from less than most steps of a small job take to more than its checkpoints."""
    return _DURATIONS_NS[struck.draw(len(_DURATIONS_NS))]
