"""Replays of the vectors about writers, committers and global committers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from operators.transactions import END_OF_INPUT, CommitRequest, CommitRules, summary
from operators.transactions.commit_rules import FLINK_1_15, FLINK_2
from operators.transactions.committables import (
    CommitFailedError,
    CommittableProtocolError,
    Message,
    SubtaskCommittables,
    committable,
)
from operators.transactions.committer_machine import CommittedCheckpoint, CommitterMachine
from operators.transactions.global_committer_machine import GlobalCommitterMachine
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields

_EVENTS = {
    "summary": {"op", "checkpoint", "subtask", "count"},
    "committable": {"op", "value", "checkpoint", "subtask"},
    "notify_complete": {"op", "id"},
    "end_input": {"op"},
    "snapshot": {"op", "id", "save_as"},
    "restore": {"op", "from", "restored_checkpoint"},
    "processing_time": {"op", "t"},
    "commit": {"op", "only_fully_received"},
}
_VERSIONS = {"2.x": FLINK_2, "1.15": FLINK_1_15}
_COMMITTERS = {"accept_all", "retry_once", "always_retry", "fail_known", "fail_unknown", "already_committed"}


def _check_events(events: Sequence[Vector], known: set[str]) -> None:
    for event in events:
        if event["op"] not in known:
            raise MalformedVector(f"unknown operation {event['op']!r}")
        check_fields(event, _EVENTS[event["op"]], f"operation {event['op']!r}")


def _checkpoint(event: Vector) -> int:
    given = event["checkpoint"]
    if given == "end_of_input":
        return END_OF_INPUT
    if not isinstance(given, int):
        raise MalformedVector(f"a checkpoint is a number or 'end_of_input', not {given!r}")
    return given


class _ScriptedCommitter:
    """The committer that a vector names: ``what[:value]``."""

    def __init__(self, script: str) -> None:
        self._what, _, only = script.partition(":")
        if self._what not in _COMMITTERS:
            raise MalformedVector(f"unknown committer {script!r}")
        self._only = only or None
        self.rounds: list[list[Any]] = []
        self.failed: list[Any] = []

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        self.rounds.append([request.committable for request in requests])
        for request in requests:
            if self._only is None or str(request.committable) == self._only:
                self._answer(request)

    def _answer(self, request: CommitRequest) -> None:
        match self._what:
            case "retry_once":
                if not request.retries:
                    request.retry_later()
            case "always_retry":
                request.retry_later()
            case "fail_known":
                request.signal_failed_with_known_reason("scripted")
                self.failed.append(request.committable)
            case "fail_unknown":
                request.signal_failed_with_unknown_reason("scripted")
            case "already_committed":
                request.signal_already_committed()


class _Watched:
    """Calls a committer, and records its requests."""

    def __init__(self, committer: _ScriptedCommitter) -> None:
        self._committer = committer
        self._rounds: list[Sequence[CommitRequest]] = []

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        self._rounds.append(requests)
        self._committer.commit(requests)

    def committed(self) -> list[list[Any]]:
        """The requests committed in each round with any success. (A retried request counts for its last round.)"""
        rounds: list[list[Any]] = []
        later: list[CommitRequest] = []
        for requests in reversed(self._rounds):
            values = [one.committable for one in requests if one.is_committed and all(one is not two for two in later)]
            later += requests
            if values:
                rounds.append(values)
        return rounds[::-1]


class _CommitterRun:
    def __init__(self, config: Vector) -> None:
        check_fields(config, {"version", "batch_mode", "checkpointing", "max_retries", "committer"}, "config")
        if config["version"] not in _VERSIONS:
            raise MalformedVector(f"unknown version {config['version']!r}")
        self._rules: CommitRules = replace(_VERSIONS[config["version"]], max_retries=config["max_retries"])
        self._checkpoint_follows = config["checkpointing"] and not config["batch_mode"]
        self.scripted = _ScriptedCommitter(config["committer"])
        self.watched = _Watched(self.scripted)
        self._saved: dict[str, list[Any]] = {}
        self.machine = CommitterMachine(self.watched, self._rules)
        self.now_ms = 0
        self._timer_ms: int | None = None

    def run(self, event: Vector) -> None:
        match event["op"]:
            case "summary":
                self.machine.add(summary(_checkpoint(event), event["subtask"], 1, event["count"]))
            case "committable":
                self.machine.add(committable(_checkpoint(event), event["subtask"], event["value"]))
            case "notify_complete":
                self.machine.notify(event["id"])
            case "end_input":
                self.machine.end_of_input(checkpoint_follows=self._checkpoint_follows)
            case "snapshot":
                self._saved[event.get("save_as", "")] = self.machine.state()
            case "restore":
                if event["from"] not in self._saved:
                    raise MalformedVector(f"nothing was saved as {event['from']!r}")
                self.machine = CommitterMachine(self.watched, self._rules)
                self._timer_ms = None
                self.machine.restore(self._saved[event["from"]], 0, event["restored_checkpoint"])
            case "processing_time":
                self.now_ms = event["t"]
                if self._timer_ms is not None and self._timer_ms <= self.now_ms:
                    self._timer_ms = None
                    self.machine.commit_covered()
            case "commit":
                for checkpoint in self.machine.books.up_to(END_OF_INPUT):
                    self.machine.commit(checkpoint, event.get("only_fully_received", False))
        delay_ms = self._rules.retry_delay_ms
        if delay_ms is not None and self._timer_ms is None and self.machine.needs_retry:
            self._timer_ms = self.now_ms + delay_ms

    def pending(self) -> list[Any]:
        return [
            request.committable
            for checkpoint in self.machine.books.up_to(END_OF_INPUT)
            for request in checkpoint.requests(only_fully_received=False)
        ]


def _sorted(values: list[Any]) -> list[Any]:
    return sorted(values, key=repr)


def sink_v2_committer(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"config", "events"}, "input")
    _check_events(given["events"], set(_EVENTS))
    run = _CommitterRun(given["config"])
    errors: list[dict[str, Any]] = []
    last_success: int | None = None
    for position, event in enumerate(given["events"]):
        before = len(run.watched.committed())
        try:
            run.run(event)
        except (CommittableProtocolError, CommitFailedError) as error:
            errors.append({"event": position, "error": error.kind})
        if len(run.watched.committed()) > before:
            last_success = position
    committed = run.watched.committed()
    comparison.fields(
        vector["expect"],
        {
            "committed": committed,
            "committed_total": _sorted([value for values in committed for value in values]),
            "committed_at_event": last_success,
            "rounds": len(run.scripted.rounds),
            "round_sizes": [len(values) for values in run.scripted.rounds],
            "failed_total": _sorted(run.scripted.failed),
            "pending_total": _sorted(run.pending()),
            "errors": errors,
        },
    )
    return comparison.finish()


def subtask_committables(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"expected", "events"}, "input")
    book = SubtaskCommittables(given["expected"])
    drains: list[list[Any]] = []
    checks: dict[str, dict[str, object]] = {}
    for event in given["events"]:
        operation, *arguments = event
        if operation not in ("add", "mark_committed", "mark_failed", "check", "drain"):
            raise MalformedVector(f"unknown operation {operation!r}")
        if len(arguments) != (operation != "drain"):
            raise MalformedVector(f"operation {operation!r} has {len(arguments)} arguments")
        match operation:
            case "add":
                book.add(arguments[0])
            case "mark_committed":
                _request(book, arguments[0]).end_round()
            case "mark_failed":
                _request(book, arguments[0]).signal_failed_with_known_reason("scripted")
            case "check":
                checks[arguments[0]] = _counters(book)
            case _:
                drains.append(book.drain())
    for name, wanted in vector["expect"].items():
        if name == "drains":
            comparison.field(name, wanted, drains)
        elif name in checks:
            comparison.fields(wanted, checks[name], f"{name}.")
        else:
            raise MalformedVector(f"expect has {name!r}, which is no check of the vector")
    return comparison.finish()


def _request(book: SubtaskCommittables, value: Any) -> CommitRequest:
    for request in book.requests:
        if request.committable == value and not request.is_finished:
            return request
    raise MalformedVector(f"committable {value!r} is not pending")


def _counters(book: SubtaskCommittables) -> dict[str, object]:
    return {
        "pending": len(book.pending),
        "drained": book.drained,
        "failed": book.failed,
        "committables": book.received,
        "expected": book.expected,
        "finished": book.is_finished,
    }


def subtask_merge(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"left", "right"}, "input")
    books = []
    for side in ("left", "right"):
        counters = given[side]
        check_fields(counters, {"requests", "expected", "drained", "failed"}, side)
        requests = [CommitRequest(f"{side}-{number}") for number in range(counters["requests"])]
        books.append(SubtaskCommittables(counters["expected"], requests, counters["drained"], counters["failed"]))
    left, right = books
    left.merge(right)
    comparison.fields(vector["expect"], _counters(left))
    return comparison.finish()


def global_committer(vector: Vector) -> list[str]:
    """``global_committer``. The number of subtasks is not given: it is the number that send a summary for a checkpoint.

    ``commit_on_input`` describes the operator that is restored, if one is. An operator that commits on input leaves no
    whole checkpoint to be restored, so before the restore the operator waited for notifications.
    """
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"commit_on_input", "events"}, "input")
    check_fields(vector["expect"], {"commits"}, "expect")
    events: list[Vector] = given["events"]
    _check_events(events, {"summary", "committable", "notify_complete", "end_input", "snapshot", "restore"})
    senders: dict[int, set[int]] = {}
    for event in events:
        if event["op"] == "summary":
            senders.setdefault(_checkpoint(event), set()).add(event["subtask"])
    watched = _Watched(_ScriptedCommitter("accept_all"))
    is_restored = any(event["op"] == "restore" for event in events)
    machine = _global_machine(watched, given["commit_on_input"] and not is_restored)
    saved: dict[str, list[Any]] = {}
    commits: list[dict[str, Any]] = []

    def take(event: Vector) -> list[CommittedCheckpoint]:
        nonlocal machine
        message: Message
        match event["op"]:
            case "summary":
                checkpoint_id = _checkpoint(event)
                message = summary(checkpoint_id, event["subtask"], len(senders[checkpoint_id]), event["count"])
                return machine.add(message)
            case "committable":
                return machine.add(committable(_checkpoint(event), event["subtask"], event["value"]))
            case "notify_complete":
                return machine.notify(event["id"])
            case "end_input":
                return machine.end_of_input(checkpoint_follows=True)
            case "snapshot":
                saved[event.get("save_as", "")] = machine.state()
                return []
            case _:
                if event["from"] not in saved:
                    raise MalformedVector(f"nothing was saved as {event['from']!r}")
                machine = _global_machine(watched, given["commit_on_input"])
                return machine.restore(saved[event["from"]], 0, event["restored_checkpoint"])

    for position, event in enumerate(events):
        values = [value for done in take(event) for value in done.payloads]
        if values:
            commits.append({"event": position, "values": values})
    comparison.field("commits", vector["expect"]["commits"], commits)
    return comparison.finish()


def _global_machine(committer: _Watched, commit_on_input: bool) -> GlobalCommitterMachine:
    return GlobalCommitterMachine(committer, FLINK_2, commit_on_input=commit_on_input)


KINDS: dict[str, Callable[[Vector], list[str]]] = {
    "sink_v2_committer": sink_v2_committer,
    "subtask_committables": subtask_committables,
    "subtask_merge": subtask_merge,
    "global_committer": global_committer,
}
"""The vectors of this file by kind."""
