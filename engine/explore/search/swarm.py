"""Swarm testing: every run of a search gets a configuration, a scheduler and a mix of faults of its own.

Leaving features out at random finds more than always having all of them: some mistakes show only where a feature that
would hide them is missing (Groce, Zhang, Eide, Chen, Regehr: Swarm Testing, ISSTA 2012). So each kind of fault is on
or off for a whole run, and so is each option of the configuration.

Only useful values are drawn. Options that a job does not have (rescaling, a log) are left out. Times are relative to
the duration of the job without faults. Values that no job could survive are not drawn, such as checkpoints that time
out before they can complete.

Everything comes from the stream ``swarm`` of the run's seed: the same seed is the same case, on every machine. A change
to the draws needs a higher :data:`SWARM_VERSION`, or old seeds would silently mean other runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from engine.elements.errors import ConfigurationError
from engine.explore.cases import (
    CANCEL,
    CLAIM_MODES,
    DRAIN,
    FIFO,
    PCT,
    RANDOM,
    SAVEPOINT,
    STOP,
    Case,
    Savepoint,
    Setting,
)
from engine.explore.run import Measure
from engine.faults.external import requests_befallen_by
from engine.faults.fault import CALL, ELEMENT, EXTERNAL, FAULT_KINDS, MESSAGE, POINT, START, TIME, Fault, FaultMix
from engine.faults.process import CHAINED, is_torn_by
from engine.observe.points import POINTS, TORN
from engine.protocols.protocol_names import MODE_ALIASES, PROTOCOLS, protocol_named
from engine.runtime.config import ALIGNED_TIMEOUT, UNALIGNED
from engine.runtime.faulted import JOB_MANAGER, PROCESS
from engine.runtime.kernel import ChoiceRecorder

SWARM_VERSION = 9

STREAM = "swarm"

SOME, ALL, NO_RUN = "some", "all", "none"
SHARES = (SOME, ALL, NO_RUN)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Swarm:
    """What may be drawn.

    ``modes``  a run gets one of these;
    ``fixed``  settings that every run has, as in :class:`engine.explore.cases.case.Case`: they are not drawn;
    ``kinds``  the kinds of faults that a run may get, ``None`` = every sound one;
    ``usual``  settings that every second run has: those of the job's own scenario;
    ``savepoints``  whether ``some`` runs, ``all`` or ``none`` take savepoints.
    """

    modes: tuple[str, ...] = ("aligned", "unaligned", "aligned-timeout", "at-least-once")
    fixed: Mapping[str, Setting] = field(default_factory=dict)
    kinds: tuple[str, ...] | None = None
    usual: Mapping[str, Setting] = field(default_factory=dict)
    savepoints: str = SOME

    def __post_init__(self) -> None:
        if not self.modes:
            raise ConfigurationError(f"no mode to explore; there are {', '.join((*PROTOCOLS, *MODE_ALIASES))}")
        for mode in self.modes:
            protocol_named(mode)
        for kind in self.kinds or ():
            if kind not in FAULT_KINDS:
                raise ConfigurationError(f"there is no fault {kind!r}; there are: {', '.join(FAULT_KINDS)}")
        if self.savepoints not in SHARES:
            raise ConfigurationError(f"savepoints in {self.savepoints!r} of the runs: say {', '.join(SHARES)}")


def _breath_ns(config: Mapping[str, Setting]) -> int:
    """The time that a slow task, or one after a slow link, needs between two checkpoints to process records, too.

    Barriers that overtake do not wait. Some operators send elements ahead of each barrier (committers must be told of
    every checkpoint), and these are work for the next task. A slow next task with constant checkpoints does only this
    work. A slow link to a task with few buffers is the same: it carries nothing else.
    """
    factors = [_number(value) for name, value in config.items() if name.startswith("cost.stragglers.")]
    links_ns = [_number(value) for name, value in config.items() if name.startswith("cost.slow_links.")]
    return 4 * max(max(factors, default=0) * _number(config.get("cost.record_ns")), *links_ns, 0)


def _number(setting: Setting | None) -> int:
    return setting if isinstance(setting, int) else 0


def draw_case(swarm: Swarm, measure: Measure, seed: str) -> Case:
    """The case that a seed stands for."""
    return _Drawing(swarm, measure, seed).case()


def possible_kinds(swarm: Swarm, measure: Measure) -> tuple[str, ...]:
    """The kinds of faults that runs may get: those requested for which the job offers opportunities. Raises
    :class:`ConfigurationError` when only impossible kinds are requested."""
    asked = swarm.kinds
    if asked is None:
        asked = tuple(kind for kind, about in FAULT_KINDS.items() if not about.unsound and about.group != _BY_HAND)
    possible = tuple(kind for kind in asked if _is_possible(kind, measure))
    if asked and not possible:
        raise ConfigurationError(
            f"none of the faults {', '.join(asked)} can happen to this job: rescale needs an operator that names no"
            " parallelism of its own, and faults of external systems a sink that writes to a log or a database"
        )
    return possible


_BY_HAND = "operator error"
"""Mistakes of people are refused or repaired; they do not strike by chance."""


def _is_possible(kind: str, measure: Measure) -> bool:
    if kind == "rescale":
        return measure.scales
    if FAULT_KINDS[kind].group == "external":
        return any(request in measure.requests for request in requests_befallen_by(kind))
    return True


class _Drawing:
    """Draws one case. Fixed settings also influence the draws that depend on them."""

    def __init__(self, swarm: Swarm, measure: Measure, seed: str) -> None:
        self._swarm = swarm
        self._measure = measure
        self._seed = seed
        self._choices = ChoiceRecorder(seed)
        self._config: dict[str, Setting] = {}
        self._kinds = possible_kinds(swarm, measure)

    def case(self) -> Case:
        fixed = self._swarm.fixed
        mode = fixed.get("mode", self._one_of(self._swarm.modes))
        self._config["mode"] = mode
        mode = MODE_ALIASES.get(str(mode), str(mode))
        self._topology()
        self._costs()
        self._checkpoints(mode)
        self._state()
        usual = self._swarm.usual if self._chance(2) else {}
        if mode != ALIGNED_TIMEOUT:
            usual = {name: value for name, value in usual.items() if name != "aligned_timeout_ns"}
        config = {name: value for name, value in {**self._config, **usual, **fixed}.items() if value is not None}
        if mode in (UNALIGNED, ALIGNED_TIMEOUT) and "min_pause_ns" not in fixed:
            config["min_pause_ns"] = max(_number(config.get("min_pause_ns")), _breath_ns(config))
        scheduler = self._one_of((RANDOM, RANDOM, RANDOM, PCT, PCT, FIFO))
        case = Case(
            seed=self._seed,
            config=config,
            mix=self._mix(),
            faults=(*self._aimed(), *self._aimed_pause(config)),
            scheduler=scheduler,
            preemptions=self._one_of((1, 2, 3, 5)),
            savepoints=self._savepoints(config),
        )
        if protocol_named(mode).tracks_records:
            case = replace(case, faults=(*case.faults, *self._aimed_burst()))
        return case

    # -- configuration --------------------------------------------------------------------------------------------

    def _topology(self) -> None:
        if self._measure.scales:
            self._set("parallelism", (None, None, 1, 2, 3))
        self._set("batch_size", (1, 2, 3, 5, 10, 50))
        self._set("channel_capacity", (None, None, 1, 2, 5, 30))
        self._set("output_capacity", (0, 0, 0, 4))
        self._set("failover", ("full", "full", "region"))
        self._set("checkpoints_after_tasks_finish", (True, True, True, False))

    def _costs(self) -> None:
        self._set("cost.source_record_ns", (1_000, 1_000, 300))
        self._set("cost.record_ns", (0, 0, 200, 1_500))
        self._set("cost.link_latency_ns", (0, 0, 300, 5_000))
        self._set("cost.storage_latency_ns", (0, 0, 500, 8_000))
        for kind, values in (("stragglers", (3, 10)), ("slow_links", (2_000, 20_000))):
            if self._chance(4):
                self._set(f"cost.{kind}.{self._one_of(self._measure.names)}", values)

    def _checkpoints(self, mode: str) -> None:
        duration_ns, records = self._measure.duration_ns, self._measure.records
        part = self._one_of((2, 2, 3, 3, 4, 7))
        in_records = self._chance(3)
        interval_ns = max(1_000, duration_ns // part)
        text = f"{max(1, records // part)}rec" if in_records else f"{interval_ns}ns"
        self._set("checkpoint_interval", (text,))
        self._set("min_pause_ns", (0, 0, 0, interval_ns // 2))
        # A checkpoint may have to wait for all elements in front of its barriers, at the pace of the slowest task.
        # The usual ten minutes would be millions of intervals, and the effects of a lost message come only after them.
        self._set("checkpoint_timeout_ns", (duration_ns * 30, duration_ns * 60))
        self._set("heartbeat_timeout_ns", (duration_ns // 4 + 1, duration_ns, duration_ns * 30))
        self._set("retained", (2, 1, 3))
        self._set("tolerable_failures", (0, 0, 3))
        self._set("random_first_delay", (False, False, True))
        if mode not in (UNALIGNED, ALIGNED_TIMEOUT):
            self._set("max_concurrent", (1, 1, 2, 3) if self._measure.overlaps else (1,))
        if mode == ALIGNED_TIMEOUT:
            self._set("aligned_timeout_ns", (1, interval_ns // 8 + 1, interval_ns))
        if self._chance(8):
            self._set("debloat_target_ns", (duration_ns // 4 + 1, duration_ns))

    def _state(self) -> None:
        self._set("state_backend", ("heap", "heap", "heap", "heap", "heap", "lsm", "changelog", "changelog:lsm"))
        self._set("snapshot", ("full", "full", "incremental"))
        self._set("snapshot_compression", ("none", "none", "none", "zlib"))
        self._set("local_recovery", (False, False, False, True))
        self._set("inline_state_bytes", (None, 0))

    # -- savepoints -----------------------------------------------------------------------------------------------

    def _savepoints(self, config: Mapping[str, Setting]) -> tuple[Savepoint, ...]:
        """In every tenth run one or two, at any moment."""
        share, some = self._swarm.savepoints, self._chance(10)
        if share == NO_RUN or (share == SOME and not some):
            return ()
        mode = str(config["mode"])
        if not protocol_named(mode).takes_checkpoints:
            return ()
        # Early: several sources, and cheap records, make a job shorter than its measure.
        record_ns = min(1_000, max(1, _number(config.get("cost.source_record_ns", 1_000))))
        first = self._savepoint(self._one_of(range(1, 5)), record_ns)
        second = self._savepoint(self._one_of(range(1, 4)), record_ns)
        if not self._chance(3):
            return (first,)
        return (first, replace(second, at_ns=first.at_ns + second.at_ns))

    def _savepoint(self, eighths: int, record_ns: int) -> Savepoint:
        at_ns = (self._measure.duration_ns * eighths // 8 + self._one_of(range(8)) * 125) * record_ns // 1_000
        kind = self._one_of((SAVEPOINT, STOP, STOP, DRAIN if self._measure.goes_on_drained else STOP, CANCEL))
        claim, native = self._one_of(CLAIM_MODES), self._chance(2)
        drawn: dict[str, Setting] = {
            "parallelism": self._one_of((None, 1, 2, 3, 4)),
            "state_backend": self._one_of((None, None, "heap", "lsm", "changelog")),
            "snapshot": self._one_of((None, None, "full", "incremental")),
        }
        if kind == SAVEPOINT:
            return Savepoint(kind, at_ns, native)
        fixed = (*self._swarm.fixed, *(() if self._measure.scales else ("parallelism",)))
        settings = {name: value for name, value in drawn.items() if value is not None and name not in fixed}
        # A native savepoint can be read by its own backend only.
        return Savepoint(kind, at_ns, native and "state_backend" not in settings, claim, settings)

    # -- faults ---------------------------------------------------------------------------------------------------

    def _mix(self) -> FaultMix:
        kinds = self._kinds
        most = self._one_of((1, 1, 2, 2, 3, 5))
        halves = self._one_of((1, 2, 2, 4))
        chosen: list[str] = []
        # Groups of kinds go on and off together, too: with broken disks half of the invariants cannot judge.
        groups: dict[str, list[str]] = {}
        for kind in kinds:
            groups.setdefault(FAULT_KINDS[kind].group, []).append(kind)
        for group, members in groups.items():
            is_on = group == _PROCESS or self._chance(min(4, len(groups)))
            chosen += [kind for kind in members if self._chance(2) and (is_on or kind in _WITH_PROCESSES)]
        if not chosen and kinds and not self._chance(4):
            chosen = [self._one_of(kinds)]
        # Crashes count for two kinds: checkpoints exist because of them.
        shares = len(chosen) + (_CRASH in chosen)
        per_million = {kind: self._chance_of(kind, halves, shares) for kind in chosen}
        return FaultMix(per_million, most if per_million else 0)

    def _aimed(self) -> tuple[Fault, ...]:
        """Crashes at named points, every other run. Chance alone is proportional to visits. It would hardly ever strike
        a point visited once in a run, such as the commit of a sink, or crash the job again while it recovers."""
        aims = self._chance(2)
        first = self._death(tuple(point for point in POINTS if point not in self._measure.absent))
        second = self._death(tuple(point for point in POINTS if point.startswith("restore.")))
        again = self._chance(3)
        if not aims or _CRASH not in self._kinds:
            return ()
        return (first, second) if again else (first,)

    def _aimed_pause(self, config: Mapping[str, Setting]) -> tuple[Fault, ...]:
        """In every fourth run, a task that pauses in the middle of its work and wakes beside its successor. Most visits
        are of files being written, and a zombie that wakes there sends nothing."""
        aims = self._chance(4)
        # The first subtask exists at any parallelism, and so does the first operator of its chain; operators chained
        # to that one may not.
        firsts = [name for name in self._measure.names if name.endswith("[0]")]
        point, first = self._one_of(_WORK), self._one_of(firsts)
        target = f"{first.removesuffix('[0]').partition(CHAINED)[0]}[0]"
        number, longer_ns = self._one_of((1, 2, 3, 5, 8, 13)), self._one_of((3_000, 10_000))
        silence_ns = config.get("heartbeat_timeout_ns")
        if not aims or _PAUSE not in self._kinds or not isinstance(silence_ns, int):
            return ()
        return (Fault(_PAUSE, target, point=point, number=number, for_ns=silence_ns + longer_ns),)

    def _aimed_burst(self) -> tuple[Fault, ...]:
        """In every third run, a network that treats several messages about records alike, one after the other, and a
        task that dies during that time: two single faults would hardly ever meet in the same record."""
        aims = self._chance(3)
        kind, message = self._one_of(("duplicate", "lose", "late")), self._one_of(("init", "ack", "reply"))
        first, deaths = self._one_of((1, 5, 13)), self._one_of((1, 2, 3, 5, 8, 13))
        for_ns = self._one_of((0, 300)) if kind != "lose" else 0
        if not aims or not {kind, _CRASH} <= {*self._kinds}:
            return ()
        target = f"acker_{message} *"
        burst = (Fault(kind, target, number=number, for_ns=for_ns) for number in range(first, first + _BURST))
        return (*burst, Fault(_CRASH, "*", point="user.process", number=deaths))

    def _death(self, points: Sequence[str]) -> Fault:
        point = self._one_of(points)
        victim = self._one_of(("*", "*", "*", JOB_MANAGER, PROCESS))
        phase = self._one_of(POINTS[point].phases)
        death = Fault(_CRASH, victim, point=point, phase=phase, number=self._one_of((1, 1, 2, 3, 5, 8)))
        # In the middle of a write its writer dies.
        return death if phase != TORN or is_torn_by(death) else replace(death, target="*")

    def _chance_of(self, kind: str, halves: int, shares: int) -> int:
        """The chance at one opportunity, so that a run gets this number of half faults, all kinds together. With a
        higher chance all would strike at the beginning, when no progress can be lost yet."""
        opportunities = max(1, sum(self._opportunities(kind, by) for by in FAULT_KINDS[kind].by))
        mine = 2 if kind == _CRASH else 1
        return min(1_000_000, max(1, 1_000_000 * halves * mine // (2 * opportunities * shares)))

    def _opportunities(self, kind: str, by: str) -> int:
        """The approximate number per run: within an order of magnitude is enough."""
        measure = self._measure
        if by == EXTERNAL:
            return sum(measure.requests.get(request, 0) for request in requests_befallen_by(kind))
        snapshots = 4 * measure.tasks
        counts = {POINT: measure.visits, ELEMENT: measure.events, MESSAGE: 3 * snapshots, CALL: 6 * snapshots}
        return {TIME: 1, START: 1, **counts}[by]

    # -- draws ----------------------------------------------------------------------------------------------------

    def _set(self, name: str, values: Sequence[Setting]) -> None:
        """Draw a setting, even if it is fixed, so that later draws stay the same."""
        self._config[name] = self._one_of(values)

    def _one_of(self, values: Iterable[T]) -> T:
        listed = tuple(values)
        return listed[self._choices.draw(STREAM, len(listed))]

    def _chance(self, one_in: int) -> bool:
        return self._choices.draw(STREAM, one_in) == 0


_CRASH, _PAUSE = "crash", "pause"
_BURST = 8
"""The number of messages."""
_WORK = ("user.process", "user.process", "user.process", "source.emit", "barrier.receive", "sink.commit")
_PROCESS = FAULT_KINDS[_CRASH].group
_WITH_PROCESSES = ("lose-unsynced",)
"""Losing unsynced data when a process dies does not mean that the disk is broken."""
