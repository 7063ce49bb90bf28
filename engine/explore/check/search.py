"""The search: every schedule and every fault of one small case, over the real engine.

States are copied, not run up to again, and each is looked at once: two ways to the same state go on as one. States are
taken in the order of (faults, events), so that the first wrong ending is one with the fewest faults, and the shortest
of these. All endings without a fault come first: they are what endings with faults are judged by (whatever a faulty run
shows, a run without faults could have shown).

With reduction, events that are independent of all others are not branched at (:mod:`engine.explore.check.independence`),
and a crash is tried once for everything that makes a difference to it:

* to a death of the process, what is in files and what readers see; within an event that changes any of that, every
  named point is tried;
* to a death of a task or of the job manager, the same, and what the job manager is about: checkpoints that are being
  triggered or completed, and messages to it. Which task dies makes no difference, as it takes all with it (with regional
  failover it does, and every one is tried); nor do acknowledgements that have come, for every pending checkpoint dies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from engine.elements.errors import ConfigurationError
from engine.explore.check.fingerprint import digest_of, failure_parts
from engine.explore.check.fork import collect, forking
from engine.explore.check.independence import Independence
from engine.explore.check.machine import Machine, State, task_of
from engine.explore.check.watcher import CRASH, KINDS, Occasion, Strike
from engine.faults.network import REPEATED
from engine.runtime.interference import JOB_MANAGER, MESSAGES, PROCESS

if TYPE_CHECKING:
    from engine.explore.case import Case
    from engine.explore.subject import Subject
    from engine.runtime.kernel import ScheduledEvent

Committed = tuple[tuple[str, tuple[str, ...]], ...]
"""What readers see, by sink; rows sorted."""

FINISHED = "finished"
STUCK, BROKEN = "stuck", "broken"
"""How a job may end besides :data:`engine.runtime.job_state.ENDED`: nothing is left to happen, but it has not ended; an
exception that nobody expects."""

_EFFECTS = ("sink.", "manifest.", "subsume.", "restore.", "snapshot.async.", "notify.", "complete.")
"""Points at which, or next to which, something changes that outlives the process."""
_COLLECT_EVERY = 500


class Step(NamedTuple):
    """One event: its position among the ready ones, and what strikes meanwhile."""

    position: int
    strikes: tuple[Strike, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckOrder:
    """What to search.

    ``case``        the case without faults; its schedule does not matter;
    ``faults``      how many faults there may be; ``kinds``: of which kinds;
    ``victims``     who may die: ``process``, ``job manager``, ``task``;
    ``max_states``, ``seconds``  where to give up;
    ``reduction``   whether independent events are taken alone.
    """

    case: Case
    faults: int = 1
    kinds: tuple[str, ...] = (CRASH,)
    victims: tuple[str, ...] = (PROCESS, JOB_MANAGER, "task")
    max_states: int = 200_000
    seconds: float = 60.0
    reduction: bool = True

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise ConfigurationError(f"an exhaustive check knows no fault {kind!r}; it knows {', '.join(KINDS)}")
        if self.faults < 0 or self.max_states < 1 or self.seconds <= 0:
            raise ConfigurationError("bounds of a check: faults from 0, states from 1, seconds above 0")


@dataclass(frozen=True, slots=True)
class Ending:
    """One way in which the job ends: ``state`` of the job, what readers see, with how many ``faults``, on the shortest
    ``path`` to it; ``text`` says what is wrong when it did not end by itself."""

    state: str
    committed: Committed
    faults: int
    path: tuple[Step, ...]
    text: str = ""


@dataclass(slots=True)
class Found:
    """What a search has come by. ``states``: those that were told apart and kept; ``transitions``: events carried out;
    ``is_complete``: whether nothing was left out; ``endings``: one of each kind, fewest faults and events first."""

    states: int = 0
    transitions: int = 0
    struck: int = 0
    seconds: float = 0.0
    is_complete: bool = True
    endings: list[Ending] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Node:
    parent: int
    steps: tuple[Step, ...]
    events: int


@dataclass(frozen=True, slots=True)
class _Task:
    """Work: go on from a copy of a node. ``steps``: what to do first, the last of them with a fault; none: branch."""

    node: int
    copy: bytes
    steps: tuple[Step, ...] = ()


class Search:
    """One search; :meth:`endings` carries it out."""

    def __init__(self, subject: Subject, order: CheckOrder) -> None:
        self._order = order
        self._machine = Machine(subject, order.case)
        self._independence: Independence | None = None
        self._nodes: list[_Node] = []
        self._queue: list[tuple[int, int, int, _Task]] = []
        self._seen: set[bytes] = set()
        self._tried: set[bytes] = set()
        self._struck: set[bytes] = set()
        self._ended: set[bytes] = set()
        self._takes_all = self._machine.config.failover != "region"
        self.found = Found()

    def endings(self) -> Iterator[Ending]:
        """All endings, in the order of (faults, events), as they are found. Stop whenever you like."""
        began = perf_counter()
        with forking():
            try:
                yield from self._search(began)
            finally:
                self.found.seconds = perf_counter() - began
                self._machine.close()
                self._queue.clear()

    def _search(self, began: float) -> Iterator[Ending]:
        state = self._machine.start()
        if self._order.reduction:
            self._independence = Independence(state.execution.plan, self._machine.config)
        self._nodes.append(_Node(-1, (), 0))
        self._put(state, _Task(0, self._machine.copy_of(state)), 0)
        for number in range(1_000_000_000):
            if not self._queue:
                return
            if self.found.states >= self._order.max_states or perf_counter() - began > self._order.seconds:
                self.found.is_complete = False
                return
            if number % _COLLECT_EVERY == _COLLECT_EVERY - 1:
                collect()
            *_, task = heappop(self._queue)
            for ending in self._strike(task) if task.steps else self._expand(task):
                self.found.endings.append(ending)
                yield ending

    def _put(self, state: State, task: _Task, more: int) -> None:
        events = self._nodes[task.node].events + len(task.steps)
        heappush(self._queue, (state.faults + more, events, len(self._queue) + self.found.transitions, task))

    # -- one task -------------------------------------------------------------------------------------------------

    def _expand(self, task: _Task) -> Iterator[Ending]:
        state = self._machine.state_of(task.copy)
        alternatives = self._machine.alternatives(state)
        if not alternatives:
            yield from self._end(state, task.node, (), "")
            return
        for number, (position, _) in enumerate(alternatives):
            if number:
                state = self._machine.state_of(task.copy)
                self._machine.alternatives(state)
            yield from self._walk(state, task, [], Step(position))

    def _strike(self, task: _Task) -> Iterator[Ending]:
        state = self._machine.state_of(task.copy)
        *before, last = task.steps
        self.found.struck += 1
        for step in before:
            self._machine.alternatives(state)
            self._machine.execute(state, step.position, step.strikes)
        self._machine.alternatives(state)
        yield from self._walk(state, task, before, last)

    def _walk(self, state: State, task: _Task, before: list[Step], step: Step) -> Iterator[Ending]:
        """Carry out an event, and then all that may be taken alone."""
        machine, steps = self._machine, list(before)
        following: Step | None = step
        while following is not None:
            event = state.execution.kernel.event_at(following.position)
            world = self._world(state)
            try:
                machine.execute(state, following.position, following.strikes)
            except AssertionError as error:
                yield from self._end(state, task.node, (*steps, following), f"AssertionError: {error}")
                return
            except Exception as error:
                yield from self._end(state, task.node, (*steps, following), f"{type(error).__name__}: {error}")
                return
            self.found.transitions += 1
            if following.strikes or self._may_change_world(state, event):
                state.world_digest = None
            if following.strikes and not self._is_new(state):
                return
            if state.faults < self._order.faults:
                self._offer(state, task, steps, following, world)
            steps.append(following)
            following = self._following(state)
        self._keep(state, task.node, tuple(steps))

    def _following(self, state: State) -> Step | None:
        alternatives = self._machine.alternatives(state)
        if len(alternatives) == 1:
            return Step(alternatives[0][0])
        if not alternatives or self._independence is None:
            return None
        alone = self._independence.alone(state.execution, alternatives)
        return None if alone is None else Step(alone[0])

    def _is_new(self, state: State) -> bool:
        """Many faults come to the same; each such state is gone on from once."""
        fingerprint = self._machine.fingerprint(state)
        if fingerprint in self._struck:
            return False
        self._struck.add(fingerprint)
        return True

    def _keep(self, state: State, parent: int, steps: tuple[Step, ...]) -> None:
        fingerprint = self._machine.fingerprint(state)
        if fingerprint in self._seen:
            return
        self._seen.add(fingerprint)
        self.found.states += 1
        state.execution.manager.validate()
        self._nodes.append(_Node(parent, steps, self._nodes[parent].events + len(steps)))
        self._put(state, _Task(len(self._nodes) - 1, self._machine.copy_of(state)), 0)

    def _end(self, state: State, parent: int, steps: tuple[Step, ...], text: str) -> Iterator[Ending]:
        manager = state.execution.manager
        how = BROKEN if text else manager.state if state.is_over else STUCK
        if how == STUCK:
            text = f"nothing is left to happen, but the job is {manager.state}"
        elif manager.error is not None and not text:
            text = str(manager.error)
        committed = tuple((where, tuple(sorted(rows))) for where, rows in sorted(state.world.committed().items()))
        key = digest_of(how, committed, bool(state.faults), text)
        if key not in self._ended:
            self._ended.add(key)
            yield Ending(how, committed, state.faults, (*self._path(parent), *steps), text)

    def _path(self, node: int) -> tuple[Step, ...]:
        parts = []
        while node >= 0:
            parts.append(self._nodes[node].steps)
            node = self._nodes[node].parent
        return tuple(step for part in reversed(parts) for step in part)

    # -- faults ---------------------------------------------------------------------------------------------------

    def _world(self, state: State) -> bytes:
        if state.world_digest is None:
            state.world_digest = self._machine.durable_fingerprint(state)
        return state.world_digest

    def _may_change_world(self, state: State, event: ScheduledEvent) -> bool:
        if task_of(event.target) is None or self._independence is None:
            return True
        return self._independence.is_loud or any(one.where.startswith(_EFFECTS) for one in state.watcher.passed)

    def _offer(self, state: State, task: _Task, steps: Sequence[Step], step: Step, world: bytes) -> None:
        """Put on the list what could have struck in the event that was just carried out."""
        after = self._world(state)
        within = after if after != world or step.strikes else None
        first = step.strikes[-1].index + 1 if step.strikes else 0
        for index, occasion in enumerate(state.watcher.passed):
            if index < first:
                continue
            for strike, key in self._strikes(state, occasion, index, world, within):
                if key is not None:
                    if key in self._tried:
                        continue
                    self._tried.add(key)
                struck = Step(step.position, (*step.strikes, strike))
                self._put(state, _Task(task.node, task.copy, (*steps, struck)), 1)
            if occasion.phase and within is None and self._independence is not None and self._takes_all:
                # Any other point of this event makes no difference.
                if CRASH in self._order.kinds and len(self._order.kinds) == 1:
                    return

    def _strikes(
        self, state: State, occasion: Occasion, index: int, world: bytes, within: bytes | None
    ) -> Iterator[tuple[Strike, bytes | None]]:
        """What may strike at an occasion, each with what stands for all that makes a difference to it. ``within``: what
        the event makes of what outlives the process, if it changes that, so that each of its points differs."""
        if not occasion.phase:
            assert occasion.where in MESSAGES, occasion
            for kind in self._order.kinds:
                if kind != CRASH and not (kind == "lose" and occasion.where in REPEATED):
                    yield Strike(index, kind, occasion.who), None
            return
        if CRASH not in self._order.kinds:
            return
        about: object = None
        for victim in self._victims(occasion):
            if self._independence is None:
                yield Strike(index, CRASH, victim), None
                continue
            place = (index, occasion) if within else None
            if victim == PROCESS:
                yield Strike(index, CRASH, victim), digest_of(state.faults, PROCESS, world, within, place)
                continue
            if about is None:
                about = failure_parts(state.execution) if self._takes_all else self._machine.fingerprint(state)
            who = victim if victim == JOB_MANAGER or not self._takes_all else "task"
            yield Strike(index, CRASH, victim), digest_of(state.faults, who, world, within, place, about)

    def _victims(self, occasion: Occasion) -> Iterator[str]:
        allowed = self._order.victims
        if PROCESS in allowed:
            yield PROCESS
        if JOB_MANAGER in allowed and (occasion.phase != "torn" or occasion.who == JOB_MANAGER):
            yield JOB_MANAGER
        if "task" in allowed and occasion.who != JOB_MANAGER:
            yield occasion.who


def search_all(subject: Subject, order: CheckOrder, until: Callable[[Ending], bool] = lambda _: False) -> Found:
    """Carry out a search, to its end or ``until`` an ending is enough."""
    search = Search(subject, order)
    endings = search.endings()
    for ending in endings:
        if until(ending):
            search.found.is_complete = False
            break
    # Its last words are what it counted.
    endings.close()  # type: ignore[attr-defined]
    return search.found


