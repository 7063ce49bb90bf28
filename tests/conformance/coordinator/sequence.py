"""Whole message sequences on a real checkpoint coordinator, with a driver that answers for storage and timers."""

from __future__ import annotations

from typing import Any

from engine.checkpoint.coordinator import (
    Acknowledge,
    CheckpointEdge,
    CheckpointGraph,
    CompletedCheckpoint,
    CoordinatorConfig,
    Decline,
    FailJob,
    IgnoredBecause,
    JobStatus,
    SharedState,
    TaskId,
    WriteMetadata,
)
from engine.checkpoint.coordinator.coordinator_messages import CoordinatorInstructions
from engine.checkpoint.coordinator.pending import RequestedForm
from engine.elements.events import CheckpointOptions, SnapshotKind, StopMode
from tests.checkpoint.coordinator.coordinator_driver import CoordinatorDriver
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields
from tests.conformance.coordinator.failures import UNLIMITED, reason_named
from tests.conformance.coordinator.finished import status_of

MS = 1_000_000
STRANGER: TaskId = (99, 0)

_CONFIG: dict[str, Any] = {
    "max_concurrent": 1,
    "min_pause_ms": 0,
    "timeout_ms": 600_000,
    "num_retained": 1,
    "unaligned": False,
    "tolerable_failed": 0,
    "interval_ms": None,
    "start_ms": 1_000_000,
    "store_fails": False,
}

_STOPS = {"stop_drain": StopMode.TERMINATE, "stop_no_drain": StopMode.SUSPEND}

_STEPS: dict[str, set[str]] = {
    "trigger": {"kind", "label", "periodic", "type"},
    "ack": {"cp", "task", "state"},
    "decline": {"cp", "task", "reason"},
    "advance": {"ms"},
    "abort_all": {"reason"},
    "start_scheduler": {"delay"},
    "stop_scheduler": set(),
    "shutdown": set(),
    "set_task": {"task", "state"},
    "fail_next_trigger": {"reason"},
    "restore_no_claim": {"cp"},
}

_ANSWERED_FALSE = (IgnoredBecause.NOT_PENDING, IgnoredBecause.DURABLE, IgnoredBecause.SHUT_DOWN)

_BY_TASK = ("triggered", "trigger_types", "complete_notifications", "abort_notifications")


class SequenceDriver(CoordinatorDriver):
    """A driver whose store may refuse checkpoints, and that goes on after the job has failed: the vectors count on."""

    def answer(self, position: int, *, fails: bool = False, maybe_written: bool = False) -> None:
        """A savepoint does not enter the store, so a failing store does not affect it."""
        work = self.outstanding[position]
        is_savepoint = isinstance(work, WriteMetadata) and work.kind is SnapshotKind.SAVEPOINT
        super().answer(position, fails=fails and not is_savepoint, maybe_written=maybe_written)

    def _carry_out(self, instructions: CoordinatorInstructions) -> None:
        failures = [one for one in instructions if isinstance(one, FailJob)]
        others = [one for one in instructions if not isinstance(one, FailJob)]
        super()._carry_out((*others, *failures[:1]))
        self.log.failures += failures[1:]


class Replay:
    def __init__(self, given: Vector) -> None:
        check_fields(given, {"config", "tasks", "steps"}, "input")
        check_fields(given.get("config", {}), _CONFIG, "config")
        config = {**_CONFIG, **given.get("config", {})}
        for task in given["tasks"]:
            check_fields(task, {"id", "source", "state"}, "a task")
        self._names: list[str] = [task["id"] for task in given["tasks"]]
        sources = [index for index, task in enumerate(given["tasks"]) if task.get("source", False)]
        others = [index for index in range(len(self._names)) if index not in sources]
        edges = tuple(CheckpointEdge(source, target) for source in sources for target in others)
        tolerable, interval_ms = config["tolerable_failed"], config["interval_ms"]
        self.driver = SequenceDriver(
            CoordinatorConfig(
                interval_ns=None if interval_ms is None else interval_ms * MS,
                timeout_ns=config["timeout_ms"] * MS,
                min_pause_ns=config["min_pause_ms"] * MS,
                max_concurrent=config["max_concurrent"],
                num_retained=config["num_retained"],
                tolerable_failures=None if tolerable == UNLIMITED else tolerable,
            ),
            CheckpointGraph((1,) * len(self._names), edges),
            CheckpointOptions.configured(unaligned=config["unaligned"]),
        )
        self.driver.now_ns = config["start_ms"] * MS
        self.driver.metadata_fails = config["store_fails"]
        self._states = {task["id"]: task.get("state", "RUNNING") for task in given["tasks"]}
        self._tell_states()

    def _task(self, name: str) -> TaskId:
        return (self._names.index(name), 0) if name in self._names else STRANGER

    def _tell_states(self) -> None:
        for name, state in self._states.items():
            self.driver.coordinator.on_task_status(self._task(name), status_of(state))

    # --- steps ----------------------------------------------------------------------------------------------------

    def apply(self, step: Vector) -> None:
        """One step; the driver then works until no work is left."""
        if step["op"] not in _STEPS:
            raise MalformedVector(f"unknown operation {step['op']!r}")
        check_fields(step, {"op", *_STEPS[step["op"]]}, f"operation {step['op']}")
        driver, coordinator, now_ns = self.driver, self.driver.coordinator, self.driver.now_ns
        match step["op"]:
            case "trigger":
                self._trigger(step)
            case "ack":
                driver.tell(coordinator.on_acknowledge(self._acknowledge(step), now_ns))
            case "decline":
                reason = reason_named(step["reason"])
                decline = Decline(step["cp"], coordinator.deployment.attempt, self._task(step["task"]), reason)
                driver.tell(coordinator.on_decline(decline, now_ns))
            case "advance":
                driver.advance(step["ms"] * MS)
            case "abort_all":
                driver.tell(coordinator.abort_pending(reason_named(step["reason"]), now_ns))
            case "start_scheduler":
                attempt = coordinator.deployment.attempt
                driver.tell(coordinator.start(now_ns, attempt, first_delay_ns=step["delay"] * MS))
            case "stop_scheduler":
                driver.tell(coordinator.stop(now_ns))
            case "shutdown":
                # Only the coordinator: what happens to the completed checkpoints is decided elsewhere.
                driver.tell(coordinator.shut_down(JobStatus.SUSPENDED, now_ns))
            case "set_task":
                if step["task"] not in self._states:
                    raise MalformedVector(f"unknown task {step['task']!r}")
                self._states[step["task"]] = step["state"]
                self._tell_states()
            case "fail_next_trigger":
                coordinator.refuse_next_id(reason_named(step["reason"]))
            case "restore_no_claim":
                driver.tell(coordinator.recover([CompletedCheckpoint(step["cp"], is_unclaimed=True)], now_ns))
                driver.tell(coordinator.restored(step["cp"], now_ns, coordinator.deployment.attempt + 1))
                self._tell_states()

    def _trigger(self, step: Vector) -> None:
        coordinator, now_ns, label = self.driver.coordinator, self.driver.now_ns, step["label"]
        kind, form = step["kind"], step.get("type", "configured")
        if form not in [one.value for one in RequestedForm]:
            raise MalformedVector(f"unknown type {form!r}")
        if kind == "savepoint" or kind in _STOPS:
            self.driver.tell(coordinator.trigger_savepoint(label, now_ns, stop=_STOPS.get(kind)))
        elif kind != "checkpoint":
            raise MalformedVector(f"unknown kind of trigger {kind!r}")
        elif step.get("periodic", False):
            self.driver.tell(coordinator.trigger_periodic(now_ns, label))
        else:
            self.driver.tell(coordinator.trigger_manual(label, now_ns, RequestedForm(form)))

    def _acknowledge(self, step: Vector) -> Acknowledge:
        state = step.get("state")
        shared: tuple[SharedState, ...] = ()
        if state is not None:
            check_fields(state, {"private", "shared"}, "a state")
            shared = tuple(_shared(one) for one in state.get("shared", ()))
        attempt = self.driver.coordinator.deployment.attempt
        return Acknowledge(step["cp"], attempt, self._task(step["task"]), state, shared=shared)

    # --- what was observed ----------------------------------------------------------------------------------------

    def observed(self, name: str, wanted: Any) -> Any:
        """The driver's observations, in the form that the vectors use."""
        driver, coordinator, log = self.driver, self.driver.coordinator, self.driver.log
        if name in _BY_TASK:
            logs: dict[str, Any] = {
                "triggered": log.triggered,
                "trigger_types": log.trigger_kinds,
                "complete_notifications": log.completed,
                "abort_notifications": log.aborted,
            }
            return {task: logs[name][self._known(task)] for task in wanted}
        match name:
            case "pending":
                return coordinator.pending.ids
            case "completed":
                return coordinator.retained.ids
            case "queued":
                return len(coordinator.requests.queued)
            case "requests":
                return {label: log.requests.get(label, "pending") for label in wanted}
            case "discarded":
                return sorted(map(str, driver.deleted_files()))
            case "job_failures":
                return len(log.failures)
            case "expired":
                return coordinator.pending.expired_ids
            case "return":
                return not any(getattr(one, "why", None) in _ANSWERED_FALSE for one in driver.last)
            case _:
                raise MalformedVector(f"unknown check {name!r}")

    def _known(self, task: str) -> TaskId:
        if task not in self._names:
            raise MalformedVector(f"unknown task {task!r}")
        return self._task(task)


def _shared(described: Vector) -> SharedState:
    check_fields(described, {"key", "handle", "placeholder"}, "a shared state")
    placeholder = described.get("placeholder", False)
    return SharedState(described["key"], None if placeholder else described["handle"])


def coordinator_sequence(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(vector["expect"], {"checks"}, "expect")
    checks = vector["expect"]["checks"]
    beyond = [check["after_step"] for check in checks if not 0 <= check["after_step"] < len(given["steps"])]
    if beyond:
        raise MalformedVector(f"there is no step {beyond[0]}")
    replay = Replay(given)
    labels = {step["label"] for step in given["steps"] if step["op"] == "trigger"}
    for position, step in enumerate(given["steps"]):
        replay.apply(step)
        for check in checks:
            if check["after_step"] != position:
                continue
            for name, wanted in check.items():
                if name == "after_step":
                    continue
                if name == "requests" and not wanted.keys() <= labels:
                    raise MalformedVector(f"nobody requests {sorted(wanted.keys() - labels)}")
                if name == "return" and step["op"] != "ack":
                    raise MalformedVector(f"step {position} is no ack and returns nothing")
                observed = replay.observed(name, wanted)
                comparison.field(f"step {position} {name}", wanted, observed, as_set=name == "discarded")
    return comparison.finish()


KINDS = {"coordinator_sequence": coordinator_sequence}
