"""The coordinator against recorded message sequences."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checkpoint.completed_store import CompletedCheckpoint, JobStatus
from engine.checkpoint.coordinator_config import CoordinatorConfig
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.messages import Acknowledge, Decline, IgnoredBecause, TaskId
from engine.checkpoint.options import configured_options
from engine.checkpoint.plan import CheckpointEdge, CheckpointGraph, TaskStatus
from engine.checkpoint.requests import RequestedForm
from tests.checkpoint.coordinator_driver import CoordinatorDriver
from tests.checkpoint.vectors import Vector, load

MS = 1_000_000
UNLIMITED = 2**31 - 1
STRANGER: TaskId = (99, 0)

NEEDS_SHARED_STATE = "the registry of shared state is another machine"
NOT_REPLAYED = {
    "incremental-window-deletes-on-subsume": NEEDS_SHARED_STATE,
    "shared-state-of-declined-checkpoint-lives-until-next-completion": NEEDS_SHARED_STATE,
    "id-counter-failure-does-not-block-queue": "the id counter is an integer and cannot fail",
}

SEQUENCES = [vector for vector in load("coordinator.json") if vector["kind"] == "coordinator_sequence"]
REPLAYED = [vector for vector in SEQUENCES if vector["name"] not in NOT_REPLAYED]


class Replay:
    """One vector on a driver."""

    def __init__(self, given: dict[str, Any]) -> None:
        config = given["config"]
        self.names: list[str] = [task["id"] for task in given["tasks"]]
        sources = [index for index, task in enumerate(given["tasks"]) if task["source"]]
        edges = tuple(
            CheckpointEdge(sources[0], index) for index in range(len(self.names)) if index not in sources
        )
        interval_ms, tolerable = config.get("interval_ms"), config.get("tolerable_failed", 0)
        self.driver = CoordinatorDriver(
            CoordinatorConfig(
                interval_ns=None if interval_ms is None else interval_ms * MS,
                timeout_ns=config.get("timeout_ms", 600_000) * MS,
                min_pause_ns=config.get("min_pause_ms", 0) * MS,
                max_concurrent=config.get("max_concurrent", 1),
                num_retained=config.get("num_retained", 1),
                tolerable_failures=None if tolerable == UNLIMITED else tolerable,
            ),
            CheckpointGraph((1,) * len(self.names), edges),
            configured_options(unaligned=config.get("unaligned", False)),
        )
        self.driver.metadata_fails = config.get("store_fails", False)
        self.labels: list[str] = []
        for task in given["tasks"]:
            self.set_task(task["id"], task.get("state", "RUNNING"))

    def task(self, name: str) -> TaskId:
        return (self.names.index(name), 0) if name in self.names else STRANGER

    def set_task(self, name: str, state: str) -> None:
        self.driver.coordinator.on_task_status(self.task(name), TaskStatus[state])

    def apply(self, step: dict[str, Any]) -> None:
        driver, coordinator, now_ns = self.driver, self.driver.coordinator, self.driver.now_ns
        match step["op"]:
            case "trigger":
                self.trigger(step)
            case "ack":
                attempt = coordinator.attempt
                driver.tell(
                    coordinator.on_acknowledge(
                        Acknowledge(step["cp"], attempt, self.task(step["task"]), step.get("state")), now_ns
                    )
                )
            case "decline":
                reason = CheckpointFailureReason[step["reason"]]
                decline = Decline(step["cp"], coordinator.attempt, self.task(step["task"]), reason)
                driver.tell(coordinator.on_decline(decline, now_ns))
            case "advance":
                driver.advance(step["ms"] * MS)
            case "abort_all":
                driver.tell(coordinator.abort_pending(CheckpointFailureReason[step["reason"]], now_ns))
            case "start_scheduler":
                delay_ns = step["delay"] * MS
                driver.tell(coordinator.start(now_ns, coordinator.attempt, first_delay_ns=delay_ns))
            case "stop_scheduler":
                driver.tell(coordinator.stop(now_ns))
            case "shutdown":
                driver.tell(coordinator.shut_down(JobStatus.FAILED, now_ns))
            case "set_task":
                self.set_task(step["task"], step["state"])
            case "restore_no_claim":
                driver.tell(coordinator.recover([CompletedCheckpoint(step["cp"], is_unclaimed=True)], now_ns))
                driver.tell(coordinator.restored(step["cp"], now_ns, coordinator.attempt + 1))
            case other:
                raise AssertionError(other)

    def trigger(self, step: dict[str, Any]) -> None:
        coordinator, now_ns, label = self.driver.coordinator, self.driver.now_ns, step["label"]
        self.labels.append(label)
        if step["kind"] != "checkpoint":
            synchronous = step["kind"] in ("stop_drain", "stop_no_drain")
            self.driver.tell(coordinator.trigger_savepoint(label, now_ns, synchronous=synchronous))
        elif step.get("periodic"):
            self.driver.tell(coordinator.trigger_periodic(now_ns, label))
        else:
            form = RequestedForm(step.get("type", "configured"))
            self.driver.tell(coordinator.trigger_manual(label, now_ns, form))

    def observed(self, name: str, wanted: Any) -> Any:
        """What the driver saw, in the form in which the vectors ask for it."""
        driver, coordinator, log = self.driver, self.driver.coordinator, self.driver.log
        match name:
            case "pending":
                return list(coordinator.pending_ids)
            case "completed":
                return list(coordinator.completed_ids)
            case "queued":
                return len(coordinator.queued)
            case "requests":
                return {label: log.requests.get(label, "pending") for label in wanted}
            case "triggered":
                return {task: log.triggered[self.task(task)] for task in wanted}
            case "trigger_types":
                return {task: log.trigger_kinds[self.task(task)] for task in wanted}
            case "complete_notifications":
                return {task: log.completed[self.task(task)] for task in wanted}
            case "abort_notifications":
                return {task: log.aborted[self.task(task)] for task in wanted}
            case "discarded":
                return sorted(driver.private_files())
            case "job_failures":
                return len(log.failures)
            case "expired":
                return list(coordinator.expired_ids)
            case "return":
                lost = (IgnoredBecause.NOT_PENDING, IgnoredBecause.DURABLE, IgnoredBecause.SHUT_DOWN)
                return not any(getattr(one, "why", None) in lost for one in driver.last)
            case other:
                raise AssertionError(other)


def test_every_sequence_is_replayed_or_listed() -> None:
    """No recorded sequence is left out silently."""
    assert len(REPLAYED) == 20
    assert {vector["name"] for vector in SEQUENCES} == {
        vector["name"] for vector in REPLAYED
    } | NOT_REPLAYED.keys()


@pytest.mark.parametrize("vector", REPLAYED, ids=[vector["name"] for vector in REPLAYED])
def test_recorded_sequence(vector: Vector) -> None:
    """The coordinator decides what Flink's coordinator decides."""
    replay = Replay(vector["input"])
    checks = {check["after_step"]: check for check in vector["expect"]["checks"]}
    for position, step in enumerate(vector["input"]["steps"]):
        replay.apply(step)
        wanted = {name: value for name, value in checks.get(position, {}).items() if name != "after_step"}
        assert wanted == {name: replay.observed(name, value) for name, value in wanted.items()}, position
