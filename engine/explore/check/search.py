"""The search: every schedule and every fault of one small case, over the real engine.

States are copied, not reached again from the start, and each is visited once: two ways to the same state continue as
one. States are taken in the order of (faults, events), so the first wrong ending has the fewest faults, and is the
shortest of these. All endings without a fault come first, because endings with faults are judged by them: a run with
faults must show only what a run without faults could have shown.

With reduction, the search does not branch at events that are independent of all others
(:mod:`engine.explore.check.independence`). It tries a crash once for each combination that makes a difference to it:

* for a death of the process or of the job manager: the files and the rows that readers see, at that very point;
* for a death of a task: the same, which checkpoints are complete, and whether one is being begun or completed. It makes
  no difference which task dies, as all restart with it (regional failover is the exception: there each task is tried).
  Acknowledgements received make no difference either, because every pending checkpoint is aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from time import perf_counter
from typing import NamedTuple

from engine.elements.errors import ConfigurationError
from engine.explore.cases import Case
from engine.explore.check.fingerprint import digest_of, failure_parts
from engine.explore.check.fork import collect, forking
from engine.explore.check.independence import Independence
from engine.explore.check.machine import CaseState, Machine
from engine.explore.check.watcher import CRASH, KINDS, LOSE, Occasion, Strike
from engine.explore.run import Subject
from engine.faults.network import REPEATED
from engine.observe.points import TORN
from engine.runtime.faulted import JOB_MANAGER, MESSAGES, PROCESS
from engine.runtime.tasks import SourceTask

Committed = tuple[tuple[str, tuple[str, ...]], ...]
"""The rows that readers see, by sink; rows are sorted."""

FINISHED = "finished"
STUCK, BROKEN = "stuck", "broken"
"""How a job may end besides :data:`engine.runtime.job.job_state.ENDED`: no event is left, but the job has not ended; an
unexpected exception was raised."""

STATES, TIME, WRONG = "states", "time", "a wrong ending"
"""Why a search may stop early: its limit of kept states, its limit of time, or its caller, who has seen a wrong
ending."""


_WORTH_A_COPY = 20
"""As many events cost a little more than a copy."""


class Move(NamedTuple):
    """One event: its position among the ready ones, and the faults that strike during it."""

    position: int
    strikes: tuple[Strike, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckOrder:
    """What to search.

    ``case``        the case without faults; its schedule does not matter;
    ``faults``      how many faults there may be; ``kinds``: of which kinds;
    ``victims``     which actors may die: ``process``, ``job manager``, ``task``;
    ``max_states``, ``seconds``  limits at which the search gives up;
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
    """One way in which the job ends: ``state`` of the job, the rows that readers see, the number of ``faults``, and the
    shortest ``path`` to it. ``text`` gives the reason when it did not end by itself. ``stopped_in_vain``: see
    :attr:`engine.explore.run.job_sequence.Jobs.has_stopped_in_vain`."""

    state: str
    committed: Committed
    faults: int
    path: tuple[Move, ...]
    text: str = ""
    stopped_in_vain: bool = False


@dataclass(slots=True)
class Found:
    """The results of a search. ``states``: different states that were kept; ``transitions``: events carried out;
    ``struck``: faults tried; ``frontier``: states and faults still to be tried; ``stopped_by``: why it stopped early,
    empty = it did not; ``endings``: one of each kind, fewest faults and events first."""

    states: int = 0
    transitions: int = 0
    struck: int = 0
    frontier: int = 0
    seconds: float = 0.0
    stopped_by: str = ""
    endings: list[Ending] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return not self.stopped_by


@dataclass(frozen=True, slots=True)
class _Node:
    parent: int
    steps: tuple[Move, ...]
    events: int


@dataclass(slots=True)
class _Reached:
    """A copy of a state on the way that some tasks have in common: ``steps`` moves after a node. ``users``: how many
    tasks have still to go that way."""

    copy: bytes
    steps: int = 0
    users: int = 0


@dataclass(frozen=True, slots=True)
class _Task:
    """Work: continue from a node, by a copy on the way. ``steps``: moves after the node to do first, the last with a
    fault; empty: branch."""

    node: int
    reached: _Reached
    steps: tuple[Move, ...] = ()


class Search:
    """One search; :meth:`endings` carries it out."""

    def __init__(self, subject: Subject, order: CheckOrder, progress: Callable[[Found], None] | None = None) -> None:
        """``progress`` receives what was found so far, some hundred times a second."""
        self._order = order
        self._progress = progress
        self._last_transition: int | None = None
        self._machine = Machine(subject, order.case, order.faults)
        self._independence: Independence | None = None
        self._nodes: list[_Node] = []
        self._queue: list[tuple[int, int, int, _Task]] = []
        """Open tasks, by faults, events and number."""
        self._put_so_far = 0
        self._seen: set[bytes] = set()
        self._tried: set[bytes] = set()
        self._struck: set[bytes] = set()
        self._passed: dict[bytes, int] = {}
        """Events before the states on the way between kept ones; see :meth:`_was_passed`."""
        self._ended: set[bytes] = set()
        self._somebody = subject.plan(self._machine.parallelism).subtasks[-1].name
        self._takes_all = self._machine.config.failover != "region"
        self.found = Found()

    def look_as_far_again(self) -> None:
        """Stop once twice as many events as now were carried out. Further calls change nothing."""
        if self._last_transition is None:
            self._last_transition = 2 * self.found.transitions

    def endings(self) -> Generator[Ending, None, None]:
        """All endings, in the order of (faults, events), as they are found. The caller may stop at any time."""
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
        self._put(state, _Task(0, _Reached(self._machine.copy_of(state))), 0)
        while True:
            self.found.frontier = len(self._queue)
            self.found.seconds = perf_counter() - began
            if self._progress is not None:
                self._progress(self.found)
            if not self._queue:
                return
            self.found.stopped_by = self._bound()
            if self.found.stopped_by:
                return
            *_, task = heappop(self._queue)
            for ending in self._strike(task) if task.steps else self._expand(task):
                self.found.endings.append(ending)
                yield ending
            collect()

    def _bound(self) -> str:
        found, order = self.found, self._order
        if found.states >= order.max_states:
            return STATES
        if found.seconds > order.seconds:
            return TIME
        return WRONG if self._last_transition is not None and found.transitions >= self._last_transition else ""

    def _put(self, state: CaseState, task: _Task, more: int) -> None:
        events = self._nodes[task.node].events + len(task.steps)
        self._put_so_far += 1
        heappush(self._queue, (state.faults + more, events, self._put_so_far, task))

    # -- one task -------------------------------------------------------------------------------------------------

    def _expand(self, task: _Task) -> Iterator[Ending]:
        state = self._machine.state_of(task.reached.copy)
        alternatives = self._machine.alternatives(state)
        if not alternatives:
            yield from self._end(state, task.node, (), "")
            return
        for number, (position, _) in enumerate(alternatives):
            if number:
                state = self._machine.state_of(task.reached.copy)
                self._machine.alternatives(state)
            yield from self._walk(state, task.node, _Reached(task.reached.copy), [], Move(position))

    def _strike(self, task: _Task) -> Iterator[Ending]:
        *before, last = task.steps
        state = self._go(task.reached, before)
        self.found.struck += 1
        self._machine.alternatives(state)
        yield from self._walk(state, task.node, _Reached(task.reached.copy, task.reached.steps), before, last)

    def _go(self, reached: _Reached, steps: Sequence[Move]) -> CaseState:
        """The state that these steps lead to. Keeps a copy of it if that saves the next tasks more than it costs. (They
        come in the order of their events, so none of them needs an earlier one.)"""
        machine = self._machine
        state = machine.state_of(reached.copy)
        for step in steps[reached.steps :]:
            machine.alternatives(state)
            machine.execute(state, step.position, step.strikes)
        reached.users -= 1
        if (len(steps) - reached.steps) * reached.users >= _WORTH_A_COPY:
            reached.copy, reached.steps = machine.copy_of(state), len(steps)
        return state

    def _walk(
        self, state: CaseState, node: int, reached: _Reached, done: Sequence[Move], step: Move
    ) -> Iterator[Ending]:
        """Carry out one event after those already done, and then all events that may be taken alone, up to a state that
        was passed before."""
        machine, steps, mine = self._machine, list(done), set[bytes]()
        attempt = state.execution.manager.job.attempt
        following: Move | None = step
        while following is not None:
            try:
                target = machine.execute(state, following.position, following.strikes)
            except AssertionError as error:
                yield from self._end(state, node, (*steps, following), f"AssertionError: {error}")
                return
            except Exception as error:
                yield from self._end(state, node, (*steps, following), f"{type(error).__name__}: {error}")
                return
            self.found.transitions += 1
            if following.strikes and not self._is_new(state, self._struck):
                return
            if machine.may_strike(state):
                self._offer(state, node, reached, steps, following)
            steps.append(following)
            attempt, before = state.execution.manager.job.attempt, attempt
            if attempt > before and not following.strikes:
                # A job that fails by itself restarts for ever; only recognising an earlier state ends that.
                break
            following = self._following(state)
            if following is not None and self._independence is not None and isinstance(target, SourceTask):
                # Most walks that meet soon come to a place where a source has had its turn. Asking at every event would
                # cost more than it saves.
                is_turn_over = not isinstance(state.execution.kernel.event_at(following.position).target, SourceTask)
                if is_turn_over and self._was_passed(state, self._nodes[node].events + len(steps), mine):
                    return
        self._keep(state, node, tuple(steps))

    def _following(self, state: CaseState) -> Move | None:
        alternatives = self._machine.alternatives(state)
        if len(alternatives) == 1:
            return Move(alternatives[0][0])
        if not alternatives or self._independence is None:
            return None
        calm = state.faults > 0 and state.faults >= self._order.faults
        alone = self._independence.alone(state.execution, alternatives, is_calm=calm)
        return None if alone is None else Move(alone[0])

    def _was_passed(self, state: CaseState, events: int, mine: set[bytes]) -> bool:
        """Whether an earlier walk came here by as few events, and went on. ``mine``: the states that this walk itself
        has passed; it does not stop at them, because events for dead tasks change no fingerprint."""
        fingerprint = self._machine.fingerprint(state)
        if fingerprint in mine:
            return False
        if self._passed.get(fingerprint, events + 1) <= events:
            return True
        mine.add(fingerprint)
        self._passed[fingerprint] = events
        return False

    def _is_new(self, state: CaseState, known: set[bytes]) -> bool:
        """Many faults, and many ways, lead to the same state; the search continues from each such state once."""
        fingerprint = self._machine.fingerprint(state)
        if fingerprint in known:
            return False
        known.add(fingerprint)
        return True

    def _keep(self, state: CaseState, parent: int, steps: tuple[Move, ...]) -> None:
        if not self._is_new(state, self._seen):
            return
        self.found.states += 1
        state.execution.manager.validate()
        self._nodes.append(_Node(parent, steps, self._nodes[parent].events + len(steps)))
        self._put(state, _Task(len(self._nodes) - 1, _Reached(self._machine.copy_of(state))), 0)

    def _end(self, state: CaseState, parent: int, steps: tuple[Move, ...], text: str) -> Iterator[Ending]:
        manager = state.execution.manager
        how = BROKEN if text else manager.job.state if state.is_over else STUCK
        if how == STUCK:
            text = f"nothing is left to happen, but the job is {manager.job.state}"
        elif manager.job.error is not None and not text:
            text = str(manager.job.error)
        committed = tuple((where, tuple(sorted(rows))) for where, rows in sorted(state.world.committed().items()))
        in_vain = state.jobs.has_stopped_in_vain
        key = digest_of(how, committed, bool(state.faults), text, in_vain)
        if key not in self._ended:
            self._ended.add(key)
            yield Ending(how, committed, state.faults, (*self._path(parent), *steps), text, in_vain)

    def _path(self, node: int) -> tuple[Move, ...]:
        parts = []
        while node >= 0:
            parts.append(self._nodes[node].steps)
            node = self._nodes[node].parent
        return tuple(step for part in reversed(parts) for step in part)

    # -- faults ---------------------------------------------------------------------------------------------------

    def _offer(self, state: CaseState, node: int, reached: _Reached, steps: Sequence[Move], step: Move) -> None:
        """Add to the list the faults that could have struck in the event that was just carried out."""
        passed, worlds = state.watcher.passed, state.watcher.worlds
        first = step.strikes[-1].index + 1 if step.strikes else 0
        about: object = None
        for index in range(first, len(passed)):
            if index > first and self._independence is not None and self._is_same(passed, worlds, index):
                continue
            if about is None and self._independence is not None:
                about = failure_parts(state.execution) if self._takes_all else self._machine.fingerprint(state)
            for strike in self._strikes(passed[index], index):
                if self._is_tried(state, passed[index], strike, worlds[index], about):
                    continue
                struck = Move(step.position, (*step.strikes, strike))
                reached.users += 1
                self._put(state, _Task(node, reached, (*steps, struck)), 1)

    @staticmethod
    def _is_same(passed: Sequence[Occasion], worlds: Sequence[bytes], index: int) -> bool:
        """Whether a crash at the previous point of this event has the same effect."""
        here, before = passed[index], passed[index - 1]
        return bool(here.phase and before.phase) and worlds[index] == worlds[index - 1] and here.who == before.who

    def _is_tried(self, state: CaseState, occasion: Occasion, strike: Strike, world: bytes, about: object) -> bool:
        if self._independence is None or strike.kind != CRASH:
            return False
        who: str = strike.victim
        if who == PROCESS:
            # The user still remembers messages about savepoints.
            about = state.jobs.fingerprint()
        elif who == JOB_MANAGER:
            # It forgets everything except whether it was about to take over or to restart.
            about = state.execution.manager.job.state
        elif self._takes_all:
            who = "task"
        key = digest_of(state.faults, who, world, about)
        if key in self._tried:
            return True
        self._tried.add(key)
        return False

    def _strikes(self, occasion: Occasion, index: int) -> Iterator[Strike]:
        kinds = self._order.kinds
        if occasion.phase:
            if CRASH in kinds:
                for victim in self._victims(occasion):
                    yield Strike(index, CRASH, victim)
            return
        assert occasion.where in MESSAGES, occasion
        for kind in kinds:
            if kind != CRASH and not (kind == LOSE and occasion.where in REPEATED):
                yield Strike(index, kind, occasion.who)

    def _victims(self, occasion: Occasion) -> Iterator[str]:
        allowed = self._order.victims
        if PROCESS in allowed:
            yield PROCESS
        if JOB_MANAGER in allowed and (occasion.phase != TORN or occasion.who == JOB_MANAGER):
            yield JOB_MANAGER
        if "task" in allowed:
            if occasion.who != JOB_MANAGER:
                yield occasion.who
            elif self._takes_all and occasion.phase != TORN:
                # Any task: the state of the job manager does not depend on which.
                yield self._somebody
