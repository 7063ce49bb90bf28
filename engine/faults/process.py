"""Faults of processes and of user code: an actor dies, pauses or raises at a named point, or at an instant.

Rules.

* A visit is one passage of one actor through one phase of one point. An exact fault counts the visits that match its
  target and strikes at its ``number``-th; each fault strikes once.
* Which visits count: all for ``process`` and ``job manager``; for ``worker[1]`` those of its tasks; for a task its
  own. At a point of the job manager its visits count for all targets.
* A victim that makes the visit itself dies at that very instruction. Any other dies after the present event.
* Faults at an instant count from the start of the first process, and strike in the process that is alive then.
* Chance may crash or pause any actor at any point, but of the ``user.*`` points only at ``user.process``, as the others
  lie inside of other steps. Chance raises only at the ``user.*`` points. Every other pause is long enough that
  the job manager gives the paused actor up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from engine.elements.errors import ConfigurationError
from engine.faults.fault import Fault, FaultMix, matches
from engine.faults.opportunities import Opportunities, Struck, drawn_duration_ns, plain_target
from engine.observe.points import FILES, MASTER, POINTS, TORN
from engine.runtime.execution import Execution
from engine.runtime.faulted import JOB_MANAGER, PROCESS, WORKER, NotedVisits, StruckDown, Weights
from engine.runtime.kernel import START_NS

CRASH, PAUSE, RESCALE, RAISE = "crash", "pause", "rescale", "raise"
KINDS = (CRASH, PAUSE, RESCALE, RAISE)

_USER = "user."
_SUBTASK = re.compile(r"\[(\d+)\]$")
CHAINED = " -> "
"""The separator between chained operators in the name of a task; no operator's name contains it."""
_MOST_PARALLELISM = 4
_VICTIMS = ("actor", "actor", "actor", "actor", "actor", WORKER, JOB_MANAGER, PROCESS)
"""The victims of chance: mostly the actor that makes the visit."""


_RARE, _SELDOM = 10, 3
_FEW = (MASTER, FILES)
_AT_LARGE = ("sink.", "restore.", "spout.", "offsets.", "operator.")
_OFTEN = ("sink.write", "sink.fsync", "sink.dir-fsync", "sink.request")
_WEIGHTS = {
    **{name: _SELDOM for name in POINTS if name.startswith(("barrier.", "align.", "ack.", "snapshot.sync", "timer."))},
    **{name: _RARE for name, point in POINTS.items() if point.actor in _FEW or name.startswith(_AT_LARGE)},
    **dict.fromkeys(_OFTEN, 1),
}
"""How many opportunities of chance a visit counts for: most visits are at a few points, and most mistakes are at the
others."""
_USUAL = Weights(_WEIGHTS)
_MOST_NOTED = 10_000
"""Visits of so many opportunities are kept before they are counted."""


def _weights(faults: Iterable[Fault]) -> Weights:
    """As usual, but exact faults count the visits of their points one by one."""
    exact = sorted({fault.point for fault in faults if fault.point is not None})
    return _weights_at(tuple(exact)) if exact else _USUAL


@lru_cache(1024)  # Visits are kept by their weights, and the cases of a search have the same points again and again.
def _weights_at(exact: tuple[str, ...]) -> Weights:
    return Weights({**_WEIGHTS, **dict.fromkeys(exact, 1 + _MOST_NOTED)})


class RaisedOnPurposeError(Exception):
    """The exception that a fault makes a user's function raise."""


class ProcessFaults:
    """The faults of processes and user functions in one case."""

    name = "faults"

    def __init__(self, faults: Sequence[Fault], mix: FaultMix, struck: Struck, *, rescales: bool = False) -> None:
        """``rescales``: whether the parallelism may change without a fault. Raises :class:`ConfigurationError` when a
        fault is invalid."""
        self._faults = [fault for fault in faults if fault.kind in KINDS]
        self._rescales = rescales or any(fault.kind == RESCALE for fault in self._faults)
        for fault in self._faults:
            _check(fault)
        self._struck = struck
        self._used = [False] * len(self._faults)
        self._seen = [0] * len(self._faults)
        self._at_points: dict[tuple[str, str], list[int]] = {}
        for at, fault in enumerate(self._faults):
            if fault.point is not None:
                self._at_points.setdefault((fault.point, fault.phase), []).append(at)
        self._by_chance = Opportunities(KINDS, (), mix, struck, details=self._details)
        self.visited = NotedVisits(_weights(self._faults))
        self.is_wary = False
        """Whether to be told of each visit at once."""
        self.last_actor: str | None = None
        """The actor of the last visit, if none was noted since."""
        self._counts_of: Counter[tuple[str, str, str]] = Counter()
        """By point, phase and actor: visits, without those that are only noted."""
        self._meant: dict[tuple[int, str], bool] = {}
        self._known_names: dict[str, tuple[str, ...]] | None = None
        self._here: tuple[str, str, str] = ("", "", "")
        self._torn: StruckDown | None = None
        self._execution: Execution | None = None
        self.next_parallelism: int | None = None
        """The parallelism that the last rescale requested."""

    # -- processes ------------------------------------------------------------------------------------------------

    def install(self, execution: Execution) -> None:
        """A process is about to run. Raises :class:`ConfigurationError` when a fault matches no target."""
        self._execution, self._known_names = execution, None
        self._meant.clear()
        for at, fault in enumerate(self._faults):
            self._check_target(fault)
            if fault.at_ns is not None and not self._used[at]:
                execution.appoint(START_NS + fault.at_ns, "strike_now", self, at)

    @property
    def _names(self) -> dict[str, tuple[str, ...]]:
        """Every name of a task, by its own name; computed when first needed."""
        names = self._known_names
        if names is None:
            assert self._execution is not None, "faults are installed before the run"
            plan = self._execution.plan
            names = self._known_names = {
                subtask.name: (subtask.name, *plan.vertices[subtask.vertex].names_of(subtask.subtask))
                for subtask in plan.subtasks
            }
            acking = self._execution.manager.acking
            if acking is not None:
                names.update({acker.name: acker.names for acker in acking.ackers})
        return names

    def _check_target(self, fault: Fault) -> None:
        target = fault.target
        if target in ("*", JOB_MANAGER, PROCESS) or target.startswith(f"{WORKER}["):
            return
        # With another parallelism there are, or were, other subtasks, and operators are chained otherwise.
        names = {name for names in self._names.values() for name in names}
        head = target
        if self._rescales:
            names, target = {_SUBTASK.sub("", name) for name in names}, _SUBTASK.sub("", target)
            head = target.partition(CHAINED)[0]
        if not any(matches(target, name) or matches(head, name) for name in names):
            raise ConfigurationError(
                f"fault {fault}: there is no task {fault.target!r}\n"
                f"  tasks: {', '.join(self._names)}; or worker[0], {JOB_MANAGER}, {PROCESS}"
            )

    def strike_now(self, at: int) -> None:
        if not self._used[at]:
            fault = self._use(at)
            self._die_soon(fault, self._targets(fault))

    # -- points ---------------------------------------------------------------------------------------------------

    def at(self, point: str, phase: str, actor: str) -> None:
        here = (point, phase, actor)
        if self.visited.passes(here, self.visited.weights.by_point.get(point, 1)):
            return
        self.settle()
        self.last_actor = actor
        self._counts_of[here] = self._counts_of.get(here, 0) + 1
        exact, found = self._at_points.get((point, phase)), None
        if exact is not None:
            found = self._exactly(exact, actor)
        if found is None and self._chance_is_alive:
            found = self._chance(here)
        self.visited.calm = self._calm()
        if found is not None:
            self._strike(found, here)

    def settle(self) -> None:
        """Count the visits that were only noted, and tell chance of them."""
        passed = self.visited.passed
        if passed:
            self._counts_of.update(passed)
            if self._chance_is_alive:
                told: dict[tuple[str, ...], int] = {}
                for visit in passed:
                    weight, possible = _chance_of(visit)
                    told[possible] = told.get(possible, 0) + weight
                for possible, count in told.items():
                    passes = self._by_chance.passes(count, possible)
                    assert passes, (count, possible)
            self.last_actor = passed[-1][2]
            passed.clear()

    @property
    def _chance_is_alive(self) -> bool:
        return self._struck.may_by_chance and self._by_chance.is_armed

    def _calm(self) -> int:
        """How many opportunities, whatever they are, pass for certain."""
        if self.is_wary:
            return 0
        return min(self._by_chance.calm, _MOST_NOTED) if self._chance_is_alive else _MOST_NOTED

    def torn(self, point: str, actor: str, size_bytes: int) -> int | None:
        """An actor is in the middle of writing ``size_bytes``. Returns how many of them are written when it dies there,
        ``None`` when it survives. :meth:`die_torn` then makes it die."""
        try:
            self.at(point, TORN, actor)
        except StruckDown as struck:
            self._torn = struck
            fault = self._struck.faults[-1]
            # Not 0: a death before the write leaves that, and an amount of 0 means that it is to be drawn.
            kept = fault.amount or (1 + self._struck.draw(size_bytes - 1) if size_bytes > 1 else 0)
            self._struck.faults[-1] = replace(fault, amount=kept)
            return min(kept, size_bytes)
        return None

    def die_torn(self) -> StruckDown:
        """The exception that :meth:`torn` has announced."""
        assert self._torn is not None
        return self._torn

    def _exactly(self, candidates: Sequence[int], actor: str) -> Fault | None:
        found = None
        for at in candidates:
            if self._used[at] or not self._is_meant(at, actor):
                continue
            self._seen[at] += 1
            if found is None and self._seen[at] >= self._faults[at].number:
                found = self._use(at)
        return found

    def _use(self, at: int) -> Fault:
        self._used[at] = True
        self._struck.note(self._faults[at])
        # Visits count one by one as long as a fault waits for them. (Steps that tasks already have keep their weight.)
        self.visited.weights = _weights(one for one, used in zip(self._faults, self._used, strict=True) if not used)
        return self._faults[at]

    def _is_meant(self, at: int, actor: str) -> bool:
        meant = self._meant.get((at, actor))
        if meant is None:
            meant = self._meant[at, actor] = self._counts(self._faults[at].target, actor)
        return meant

    def _counts(self, target: str, actor: str) -> bool:
        if actor == JOB_MANAGER or target in (JOB_MANAGER, PROCESS):
            return True
        if target.startswith(f"{WORKER}["):
            return target == worker_of(actor)
        return any(matches(target, name) for name in self._names.get(actor, (actor,)))

    def _strike(self, fault: Fault, here: tuple[str, str, str]) -> None:
        point, phase, actor = here
        if fault.kind == RAISE:
            raise RaisedOnPurposeError(f"{fault}: {actor} raises {phase} {point}")
        targets = self._targets(fault, actor)
        if fault.kind == PAUSE:
            self._die_soon(fault, targets)
            return
        cause = f"struck down {phase} {point}"
        if targets == [PROCESS] or actor in targets or worker_of(actor) in targets:
            if fault.kind == RESCALE:
                self.next_parallelism = fault.amount
            raise StruckDown(targets[0] if len(targets) == 1 else actor, cause)
        self._die_soon(fault, targets, cause)

    def _targets(self, fault: Fault, actor: str | None = None) -> list[str]:
        """The victims of a fault when ``actor`` makes a visit; at an instant, all that its target matches."""
        target = fault.target
        if fault.kind == RESCALE:
            return [PROCESS]
        if target in (JOB_MANAGER, PROCESS) or target.startswith(f"{WORKER}["):
            return [target]
        if actor is not None and (actor != JOB_MANAGER or matches(target, JOB_MANAGER)):
            return [actor]
        return [task for task, names in self._names.items() if any(matches(target, name) for name in names)]

    def _die_soon(self, fault: Fault, targets: Sequence[str], cause: str = "struck down") -> None:
        execution = self._execution
        assert execution is not None, "faults are installed before the run"
        if fault.kind == RESCALE:
            self.next_parallelism = fault.amount
        for target in targets:
            if fault.kind == PAUSE:
                execution.pause(target, fault.for_ns)
            else:
                execution.condemn(target, cause)

    # -- by chance ------------------------------------------------------------------------------------------------

    def _chance(self, here: tuple[str, str, str]) -> Fault | None:
        weight, possible = _chance_of(here)
        if not self._by_chance.passes(weight, possible):
            self._here = here
            for _ in range(weight):
                found = self._by_chance.strike(here[2], possible)
                if found is not None:
                    return found
        return None

    def _details(self, fault: Fault) -> Fault:
        point, phase, actor = self._here
        struck, target, amount, for_ns = self._struck, actor, 0, 0
        if fault.kind == CRASH:
            victim = _VICTIMS[struck.draw(len(_VICTIMS))]
            if victim == WORKER:
                target = worker_of(actor) or actor
            elif victim != "actor" and phase != TORN:
                target = victim
        elif fault.kind == PAUSE:
            for_ns = drawn_duration_ns(struck)
            if struck.draw(2):
                # Longer than the heartbeat timeout, but not much: the task wakes beside its successor.
                assert self._execution is not None, "faults are installed before the run"
                for_ns += self._execution.config.heartbeat_timeout_ns
        elif fault.kind == RESCALE:
            target, amount = PROCESS, 1 + struck.draw(_MOST_PARALLELISM)
        number = sum(
            count
            for (where, when, who), count in self._counts_of.items()
            if where == point and when == phase and self._counts(target, who)
        )
        return Fault(fault.kind, plain_target(target), None, point, phase, number, for_ns, amount)

    # -- inspection -----------------------------------------------------------------------------------------------

    @property
    def visits(self) -> Mapping[tuple[str, str, str], int]:
        """``(point, phase, actor)`` -> number of visits."""
        self.settle()
        return self._counts_of

    @property
    def unused(self) -> tuple[Fault, ...]:
        return tuple(fault for fault, used in zip(self._faults, self._used, strict=True) if not used)


@lru_cache(4096)  # The cases of a search have the same few actors.
def _chance_of(visit: tuple[str, str, str]) -> tuple[int, tuple[str, ...]]:
    """How many opportunities a visit is, and of which kinds: those that chance may use on the visiting actor."""
    point, phase, actor = visit
    if point.startswith(_USER) and point != "user.process":
        possible: tuple[str, ...] = (RAISE,)
    elif phase == TORN:
        possible = (CRASH,)
    else:
        kinds = (CRASH, RESCALE) if actor == JOB_MANAGER else (CRASH, PAUSE, RESCALE)
        possible = (*kinds, RAISE) if point.startswith(_USER) else kinds
    return opportunities_at(point), possible


def opportunities_at(point: str) -> int:
    """How many opportunities of chance one visit of a point is."""
    return _WEIGHTS.get(point, 1)


def worker_of(actor: str) -> str | None:
    """The worker of a task: all subtasks of one index share one worker."""
    match = _SUBTASK.search(actor)
    return None if match is None else f"{WORKER}{match[0]}"


def _check(fault: Fault) -> None:
    problem = None
    if fault.kind == RAISE:
        if fault.point is None or not fault.point.startswith(_USER):
            places = ", ".join(point for point in POINTS if point.startswith(_USER))
            problem = f"a user's function raises at one of {places}; write raise:count[0]@before:user.process#1"
        elif fault.target in (PROCESS, JOB_MANAGER):
            problem = f"it is a task's function that raises, not one of {fault.target}"
    elif fault.at_ns is None and fault.point is None:
        problem = f"say when: {fault.kind}:TARGET@TIME, or {fault.kind}:TARGET@PHASE:POINT#N"
    elif fault.kind == PAUSE and not fault.for_ns:
        problem = "say for how long: pause:TARGET@TIME~DURATION"
    elif fault.kind == PAUSE and fault.target in (PROCESS, JOB_MANAGER):
        problem = "tasks may be paused, or worker[i]; a pause of all would have no effect"
    elif fault.kind == RESCALE and fault.amount < 1:
        problem = "say with which parallelism the job is resumed: rescale:process@TIME=PARALLELISM"
    elif fault.kind == RESCALE and fault.target != PROCESS:
        problem = "only the whole process can be resumed with another parallelism: rescale:process@…"
    elif fault.phase == TORN and fault.point is not None and not is_torn_by(fault):
        problem = "only a writer can die in the middle of a write: a task, job manager, or process"
    if problem is not None:
        raise ConfigurationError(f"fault {fault}: {problem}")


def is_torn_by(fault: Fault) -> bool:
    """Whether a fault in the middle of a write strikes its writer."""
    assert fault.point is not None, fault
    if fault.kind != CRASH or POINTS[fault.point].actor != FILES:
        return False
    return fault.target != JOB_MANAGER or fault.point.startswith("manifest.")
