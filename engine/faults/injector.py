"""The fault injector: all faults of one case, over all of its processes.

It combines the families of faults, each of which knows its own kinds: processes and user code
(:mod:`engine.faults.process`), messages and channels (:mod:`engine.faults.network`), time (:mod:`engine.faults.clock`),
disks (:mod:`engine.faults.disk_faults`), systems outside (:mod:`engine.faults.external`) and the operator who starts
the job (:mod:`engine.faults.operator_error`). All of them note the faults that strike in one place, as exact faults in
order: used instead of the chances they were drawn from, and with the same schedule, they make the same run.

Faults by chance end, so that one can ask whether a job finishes once no more faults strike: after so many
faults (``FaultMix.most``), or after a time. Exact faults have no such limit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol

from engine.faults.clock import ClockFaults
from engine.faults.disk_faults import MAY_END_THE_JOB, StorageFaults
from engine.faults.external import ExternalFaults, sinks_outside
from engine.faults.fault import Fault, FaultMix
from engine.faults.network import NetworkFaults
from engine.faults.operator_error import OperatorErrors
from engine.faults.opportunities import Struck
from engine.faults.probing_filesystem import OutputFileSystem, ProbingFileSystem
from engine.faults.process import ProcessFaults
from engine.graph.plan import ExecutionPlan
from engine.observe.points import BEFORE
from engine.runtime.execution import Execution
from engine.runtime.faulted import ZOMBIE, StruckDown
from engine.runtime.kernel import ChoiceRecorder
from state_backends.files import FileSystem

_PLACE = itemgetter(0, 1)
"""Of a visit: point and phase."""


class FaultyWorld(Protocol):
    """Everything that outlives the processes of a case."""

    @property
    def checkpoints(self) -> FileSystem:
        """The disk of checkpoints, without faults."""

    @property
    def sinks(self) -> Mapping[str, Any]:
        """Sinks in memory, by uid."""


class FaultInjector:
    """Implements :class:`engine.runtime.faulted.interference.Interference` for one case.

    ``network``, ``clock``, ``storage``, ``errors``, ``external``, ``processes``: the families of faults.
    """

    def __init__(
        self,
        faults: Sequence[Fault] = (),
        mix: FaultMix | None = None,
        choices: ChoiceRecorder | None = None,
        *,
        heal_after_ns: int | None = None,
        unsound: bool = False,
        rescales: bool = False,
    ) -> None:
        """``faults`` strike for certain, those of ``mix`` as drawn from ``choices``, but no drawn fault strikes once
        ``heal_after_ns`` have passed since the start. ``unsound``: whether channels may lose and reorder;
        ``rescales``: whether the parallelism may change without a fault.

        :raises ConfigurationError: when a fault is invalid
        """
        mix = FaultMix() if mix is None else mix
        self._struck = struck = Struck(mix, ChoiceRecorder() if choices is None else choices)
        self._heal_after_ns = heal_after_ns
        self._execution: Execution | None = None
        self._passed_ns = 0
        """Virtual time of the processes that have died: the clock goes back with each."""
        self.unwinding: StruckDown | None = None
        self.processes = ProcessFaults(faults, mix, struck, rescales=rescales)
        self.processes.is_wary = heal_after_ns is not None
        self.visited = self.processes.visited
        self.network = NetworkFaults(faults, mix, struck, unsound=unsound)
        self.clock = ClockFaults(faults, mix, struck)
        self.storage = StorageFaults(faults, mix, struck)
        self.errors = OperatorErrors(faults, mix, struck)
        self.external = ExternalFaults(faults, mix, struck)

    # -- the processes of a case ------------------------------------------------------------------------------------

    def wrap(self, file_system: FileSystem, name: str, logs: Collection[str] = ()) -> FileSystem:
        """The disk of ``checkpoints`` or ``files`` as a process gets it."""
        self.unwinding = None
        faulty = self.storage.wrap(file_system, name)
        return ProbingFileSystem(faulty, self) if name == "checkpoints" else OutputFileSystem(faulty, self, logs)

    def in_world(self, plan: ExecutionPlan, world: FaultyWorld, storage_dir: str) -> ExecutionPlan:
        """The plan of a process in a world, whose sinks' external systems may fail from now on. Operator errors strike
        here, in ``storage_dir``: the process itself does not run yet."""
        self.errors.before_process(plan, world.checkpoints, storage_dir)
        self.external.attach(world.sinks, self._request)
        return self.external.in_plan(plan)

    def in_run(self, plan: ExecutionPlan) -> ExecutionPlan:
        """The plan of a run without a case: the systems that its sinks write to may fail from now on."""
        self.external.attach(sinks_outside(plan), self._request)
        return self.external.in_plan(plan)

    def install(self, execution: Execution) -> None:
        """A process is about to run. Raises :class:`ConfigurationError` when a fault matches no target."""
        self._passed_ns, self._execution = self._elapsed_ns, execution
        self.processes.settle()
        self.processes.last_actor = None
        self._struck.kernel = execution.kernel
        self.processes.install(execution)
        self.network.started(execution)
        self.clock.started(execution)
        self.external.started(execution.kernel)

    # -- questions of the runtime -----------------------------------------------------------------------------------

    def at(self, point: str, phase: str, actor: str) -> None:
        if actor.startswith(ZOMBIE):
            # This actor counts as dead; only the fences watch its actions.
            self.processes.settle()
            self.processes.last_actor = None
            return
        if self._heal_after_ns is not None and self._elapsed_ns > self._heal_after_ns:
            self._struck.heal()
            self._heal_after_ns, self.processes.is_wary = None, False
        try:
            self.processes.at(point, phase, actor)
        except StruckDown as struck:
            self.unwinding = struck
            raise

    @property
    def _actor(self) -> str | None:
        """The actor that passed a point last; it is the writer of any file written now."""
        passed = self.visited.passed
        return passed[-1][2] if passed else self.processes.last_actor

    @property
    def _elapsed_ns(self) -> int:
        execution = self._execution
        if execution is None:
            return self._passed_ns
        return self._passed_ns + execution.kernel.now_ns - execution.manager.job.started_ns

    @property
    def disturbs_messages(self) -> bool:
        return self.network.disturbs_messages

    def fates(self, message: str, task: str) -> tuple[int, ...]:
        return self.network.fates(message, task)

    @property
    def disturbs_elements(self) -> bool:
        return self.network.disturbs_elements

    @property
    def disturbs_time(self) -> bool:
        return self.clock.is_armed

    def element_delay_ns(self, channel: str, kind: str) -> int:
        return self.network.element_delay_ns(channel, kind)

    def clock_skew_ns(self, task: str) -> int:
        return self.clock.clock_skew_ns(task)

    def hold_ns(self, task: str, is_source: bool) -> int:
        return self.clock.hold_ns(task, is_source)

    def watermark_delay_ns(self, task: str) -> int:
        return self.clock.watermark_delay_ns(task)

    def _request(self) -> None:
        """The last actor makes a request to an external system."""
        self.at_file("sink.request", BEFORE)

    # -- questions of the file system ---------------------------------------------------------------------------------

    def at_file(self, point: str, phase: str) -> None:
        """The last actor has reached a point with a file."""
        visited = self.visited
        passed = visited.passed
        actor = passed[-1][2] if passed else self.processes.last_actor
        if actor is not None and not visited.passes((point, phase, actor), visited.weights.by_point.get(point, 1)):
            self.at(point, phase, actor)

    def torn(self, point: str, size_bytes: int) -> int | None:
        actor = self._actor
        return None if actor is None else self.processes.torn(point, actor, size_bytes)

    def die_torn(self) -> StruckDown:
        self.unwinding = self.processes.die_torn()
        return self.unwinding

    # -- results ------------------------------------------------------------------------------------------------------

    @property
    def struck(self) -> tuple[Fault, ...]:
        """The faults that have struck, exactly and in order."""
        return tuple(self._struck.faults)

    @property
    def unused(self) -> tuple[Fault, ...]:
        """Exact faults that have not struck."""
        families = (self.processes, self.network, self.clock, self.storage, self.errors, self.external)
        return tuple(fault for family in families for fault in family.unused)

    @property
    def points(self) -> dict[tuple[str, str], int]:
        """``(point, phase)`` -> number of visits."""
        points: dict[tuple[str, str], int] = {}
        visits = self.processes.visits
        for place, count in zip(map(_PLACE, visits), visits.values(), strict=True):
            points[place] = points.get(place, 0) + count
        return points

    @property
    def may_end_the_job(self) -> bool:
        """Whether a fault has struck after which a job may end with an error that names the cause."""
        return any(fault.kind in MAY_END_THE_JOB for fault in self._struck.faults)
