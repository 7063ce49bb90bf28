"""Compares what was observed with what a vector expects: one text per mismatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance.barrier.observed import Observed, Vector
from tests.conformance.compare import MalformedVector, check_fields, same

_COMMENTS = ("notes", "output_order_scope", "inflight_scope", "source_channels")
"""Fields that are no expectation of their own."""


def mismatches(vector: Vector, observed: Observed) -> list[str]:
    """One text per mismatch. Raises ``MalformedVector`` for an unknown field, or if there is no field at all."""
    expect = vector["expect"]
    check_fields(expect, (*_FIELDS, *_COMMENTS), "expect")
    found = list(observed.problems)
    known = [name for name in expect if name in _FIELDS]
    if not known:
        raise MalformedVector("nothing is expected, so nothing was compared")
    for name in known:
        found += _FIELDS[name](name, expect[name], observed, vector)
    return found


def _same(name: str, expected: object, observed: object) -> list[str]:
    return [] if same(expected, observed) else [f"{name}: expected {expected!r}, observed {observed!r}"]


def _ids(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    seen = {"triggered": observed.triggered, "aborted": observed.aborted, "pending_at_end": observed.pending}[name]
    return _same(name, expected, seen)


def _any(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    seen = observed.triggered if name == "triggered_any" else observed.aborted
    return _same(name, expected, bool(seen))


def _order(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    seen = observed.output if name == "output_order" else observed.events
    return _in_scope(name, expected, seen, vector["expect"].get("output_order_scope", "total"), vector)


def _inflight(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    seen = {str(checkpoint_id): names for checkpoint_id, names in observed.inflight.items()}
    if expected.keys() != seen.keys():
        return _same(name, expected, seen)
    scope = vector["expect"].get("inflight_scope", "total")
    return [
        text
        for checkpoint_id, names in expected.items()
        for text in _in_scope(f"{name}[{checkpoint_id}]", names, seen[checkpoint_id], scope, vector)
    ]


def _in_scope(name: str, expected: list[Any], observed: list[Any], scope: str, vector: Vector) -> list[str]:
    if scope == "total":
        return _same(name, expected, observed)
    if scope != "per_channel":
        raise MalformedVector(f"unknown scope of comparison {scope!r}")
    channel_of = {operation[2]: operation[1] for operation in vector["input"] if operation[0] == "rec"}
    # A record that was never sent belongs to no channel, and would not be compared.
    invented = [one for one in expected if isinstance(one, str) and one not in channel_of]
    found = [f"{name}: expected {one!r}, which was never sent" for one in invented]
    for channel in range(vector["channels"]):
        wanted, seen = (
            [one for one in order if isinstance(one, list) or channel_of.get(one) == channel]
            for order in (expected, observed)
        )
        found += _same(f"{name} of channel {channel}", wanted, seen)
    return found


def _reasons(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    return _same(name, expected, {str(one): reason for one, reason in observed.abort_reasons.items()})


def _kinds(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    return _same(name, expected, {str(one): kind for one, kind in observed.kinds.items()})


def _metrics(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    found = []
    for checkpoint_id, values in expected.items():
        measured = observed.metrics.get(int(checkpoint_id), {})
        for key, value in values.items():
            found += _same(f"{name}[{checkpoint_id}].{key}", value, measured.get(key))
    return found


def _blocked(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    return [
        text
        for position, channels in expected
        for text in _same(f"{name} input[{position}]", sorted(channels), observed.blocked_after[position])
    ]


def _counts(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    return [
        text
        for position, counts in expected
        for channel, count in counts.items()
        for text in _same(
            f"{name} input[{position}] of channel {channel}",
            count,
            observed.inflight_counts_after[position].get(int(channel), 0),
        )
    ]


def _resumed_after(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    return [
        text
        for position, channels in expected
        for text in _same(f"{name} input[{position}]", sorted(channels), observed.resumed_after[position])
    ]


def _resumed(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    return _same(name, sorted(expected), observed.resumed)


def _downstream(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    # The format shows markers only; a vector that lists the records between them gets those as well.
    if not any(isinstance(one, str) for one in expected):
        return _same(name, expected, [one for one in observed.downstream if isinstance(one, list)])
    return _same(name, expected, observed.downstream)


def _failed(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    return _same(name, sorted(expected), observed.channel_state_failed)


def _callback_order(name: str, expected: Any, observed: Observed, vector: Vector) -> list[str]:
    return _same(name, bool(expected), observed.told_before_channel_state_ended)


_FIELDS: dict[str, Callable[[str, Any, Observed, Vector], list[str]]] = {
    "triggered": _ids,
    "aborted": _ids,
    "pending_at_end": _ids,
    "triggered_any": _any,
    "aborted_any": _any,
    "output_order": _order,
    "event_order": _order,
    "inflight": _inflight,
    "inflight_counts_after": _counts,
    "abort_reasons": _reasons,
    "abort_callback_order": _callback_order,
    "ckpt_kind": _kinds,
    "metrics": _metrics,
    "blocked_after": _blocked,
    "resumed_after": _resumed_after,
    "resumed_channels": _resumed,
    "downstream": _downstream,
    "channel_state_failed": _failed,
}
