"""The format of barrier vectors: errors that are refused before any replay, with their place in the vector.

An error that passes here and is not understood later is a failure as well; here the reason is clear. Fields of a vector
that do not affect the replay (its source, its certainty) may have any name.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.barrier.observed import Vector
from tests.conformance.compare import MalformedVector

_MODES = ("aligned", "unaligned", "at_least_once", "aligned_timeout")
_SCOPES = ("input", "output", "recovery", "task")
_DELIVERIES = ("eager", "direct", "manual")
_KINDS = ("aligned", "savepoint", "unaligned", "aligned_timeout")
_TAGS = (
    *("manual_poll", "announcement", "passive_time", "direct_delivery", "rpc_trigger", "chained_source"),
    *("close", "output_side", "recovery", "abort_notification"),
)

_CHANNEL, _ID, _AMOUNT, _NAME = "channel", "id", "amount", "name"
_BARRIER_OPTIONS = ("kind", "timeout_ms", "ts_ms")
_OPERATIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "rec": ((_CHANNEL, _NAME), ("bytes",)),
    "barrier": ((_CHANNEL, _ID), _BARRIER_OPTIONS),
    "cancel": ((_CHANNEL, _ID), ()),
    "eop": ((_CHANNEL,), ()),
    "eod": ((_CHANNEL,), ()),
    "advance_ms": ((_AMOUNT,), ()),
    "advance_ms_passive": ((_AMOUNT,), ()),
    "fire_timers": ((), ()),
    "close": ((), ()),
    "poll": ((_AMOUNT,), ()),
    "poll_channel": ((_CHANNEL,), ()),
    "poll_all": ((), ()),
    "poll_announcement": ((_CHANNEL,), ()),
    "poll_announcements": ((), ()),
    "rpc_trigger": ((_ID,), _BARRIER_OPTIONS),
    "abort_rpc": ((_ID,), ()),
    "source_barrier": ((_CHANNEL, _ID), _BARRIER_OPTIONS),
    "event": ((_CHANNEL, _NAME), ()),
    "resume": ((_CHANNEL,), ()),
    "barrier_timeout": ((_ID,), ()),
    "expect_empty": ((), ()),
    "end_of_state": ((_CHANNEL,), ()),
}
"""The arguments of each operation, and the names of its options."""

_SENDS = ("rec", "barrier", "cancel", "eop", "eod")
_POLLS = ("poll", "poll_channel", "poll_all", "poll_announcement", "poll_announcements", "expect_empty")
_POSITIONS = ("blocked_after", "resumed_after", "inflight_counts_after")
_BY_ID = ("inflight", "abort_reasons", "ckpt_kind", "metrics")
_LISTS = (
    *("triggered", "aborted", "pending_at_end", "output_order", "event_order", "resumed_channels", "downstream"),
    *("channel_state_failed", "source_channels"),
)


def check_format(vector: Vector) -> None:
    """Raises ``MalformedVector`` for what the format does not have, and for what could only be a slip."""
    channels = vector.get("channels")
    if not _is_number(channels) or not channels:
        raise MalformedVector(f"channels must be a number above 0, but it is {channels!r}")
    for name, known in (("mode", _MODES), ("scope", _SCOPES), ("delivery", _DELIVERIES)):
        if vector.get(name, "input" if name == "scope" else None) not in known:
            raise MalformedVector(f"unknown {name} {vector.get(name)!r}; there are {', '.join(known)}")
    if not isinstance(vector.get("checkpoints_after_tasks_finish"), bool):
        raise MalformedVector("checkpoints_after_tasks_finish must be true or false")
    if vector.get("timeout_ms") is not None:
        _check_argument(_AMOUNT, vector["timeout_ms"], vector, "timeout_ms")
    for tag in _list(vector.get("requires", []), "requires"):
        if tag not in _TAGS:
            raise MalformedVector(f"unknown capability {tag!r} in requires")
    for channel in _list(vector.get("local_channels", []), "local_channels"):
        _check_argument(_CHANNEL, channel, vector, "local_channels")
    _check_operations(vector)
    _check_expect(vector)


def _check_operations(vector: Vector) -> None:
    records: set[str] = set()
    ended: set[int] = set()
    for position, operation in enumerate(vector["input"]):
        where = f"input[{position}]"
        if not isinstance(operation, list) or not operation or not isinstance(operation[0], str):
            raise MalformedVector(f"{where} is no operation: {operation!r}")
        name = operation[0]
        if name not in _OPERATIONS:
            raise MalformedVector(f"unknown operation {operation!r} in {where}")
        _check_arguments(operation, vector, f"{where} {name}")
        if name in _POLLS and vector["delivery"] != "manual":
            raise MalformedVector(f"{where}: {name} needs manual delivery")
        if name in _SENDS:
            if operation[1] in ended:
                raise MalformedVector(f"{where}: channel {operation[1]} has ended already")
            if name == "eop":
                ended.add(operation[1])
        if name == "rec":
            if operation[2] in records:
                raise MalformedVector(f"{where}: there are two records {operation[2]!r}")
            records.add(operation[2])


def _check_arguments(operation: list[Any], vector: Vector, where: str) -> None:
    arguments, options = _OPERATIONS[operation[0]]
    given = operation[1:]
    if options and given and isinstance(given[-1], dict):
        _check_options(given.pop(), options, vector, where)
    if len(given) != len(arguments):
        raise MalformedVector(f"{where} needs {len(arguments)} arguments ({', '.join(arguments)}): {operation!r}")
    for argument, value in zip(arguments, given, strict=True):
        _check_argument(argument, value, vector, where)


def _check_options(given: dict[str, Any], known: tuple[str, ...], vector: Vector, where: str) -> None:
    for name, value in given.items():
        if name not in known:
            raise MalformedVector(f"unknown option {name!r} of {where}")
        if name == "kind":
            if value not in _KINDS:
                raise MalformedVector(f"unknown kind of barrier {value!r} in {where}")
        else:
            _check_argument(_AMOUNT, value, vector, f"{where} {name}")


def _check_argument(argument: str, value: Any, vector: Vector, where: str) -> None:
    match argument:
        case "channel" if not _is_number(value) or value >= vector["channels"]:
            raise MalformedVector(f"{where}: there is no channel {value!r}")
        case "id" | "amount" if not _is_number(value):
            raise MalformedVector(f"{where}: the {argument} must be a number from 0, but it is {value!r}")
        case "name" if not isinstance(value, str):
            raise MalformedVector(f"{where}: the name must be a text, but it is {value!r}")


def _check_expect(vector: Vector) -> None:
    expect = vector["expect"]
    for name in _LISTS:
        _list(expect.get(name, []), f"expect.{name}")
    for name in _BY_ID:
        by_id = expect.get(name, {})
        if not isinstance(by_id, dict) or not all(key.isdecimal() for key in by_id):
            raise MalformedVector(f"expect.{name} must be an object by checkpoint id, but it is {by_id!r}")
    for name in _POSITIONS:
        for one in _list(expect.get(name, []), f"expect.{name}"):
            if not isinstance(one, list) or len(one) != 2 or not _is_number(one[0]) or one[0] >= len(vector["input"]):
                raise MalformedVector(f"expect.{name} must hold [position in input, value], but it holds {one!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedVector(f"{where} must be a list, but it is {value!r}")
    return value
