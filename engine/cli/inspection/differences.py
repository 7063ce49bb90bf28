"""Differences in keyed state between two checkpoints, for people and as JSON-able data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.cli.inspection.checkpoint_reader import Selection
from engine.report.units import plural
from engine.runtime.storage import FoundCheckpoint, selected_operators
from state_backends.codec import inspecting_codec, plain, shown
from state_backends.offline import EntryDifference, SnapshotContent, StateEntry, differences

DIFFERENCE_SCHEMA = "weir-state-difference"
DIFFERENCE_SCHEMA_VERSION = 1

ADDED, REMOVED, CHANGED = "added", "removed", "changed"


def compare(before: FoundCheckpoint, after: FoundCheckpoint, selection: Selection) -> dict[str, Any]:
    """The differences by operator and state, counted, with up to ``selection.limit`` of each state shown.

    Raises :class:`state_backends.base.StateBackendError` when a byte of either is damaged, and
    :class:`engine.elements.errors.ConfigurationError` when neither has the selected operator.
    """
    contents = [_content(found) for found in (before, after)]
    if selection.uid is not None and not any(_has(content, selection.uid) for content in contents):
        selected_operators(contents[0].metadata.operators, selection.uid, before.directory)
    states: dict[tuple[str, str], dict[str, Any]] = {}
    for difference in differences(contents[0], contents[1]):
        entry = difference.after or difference.before
        assert entry is not None, difference
        if selection.uid not in (None, entry.operator):
            continue
        counts = {ADDED: 0, REMOVED: 0, CHANGED: 0}
        fresh = {"operator": entry.operator, "state": entry.state, "kind": entry.kind, **counts, "shown": []}
        state = states.setdefault((entry.operator, entry.state), fresh)
        change = _change(difference)
        state[change] += 1
        if len(state["shown"]) < selection.limit:
            state["shown"].append({"change": change, **_described(entry, difference)})
    return {
        "schema": DIFFERENCE_SCHEMA,
        "schema_version": DIFFERENCE_SCHEMA_VERSION,
        "before": before.directory,
        "after": after.directory,
        "equal": not states,
        "states": [states[one] for one in sorted(states)],
    }


def _content(found: FoundCheckpoint) -> SnapshotContent:
    location = found.location()
    return SnapshotContent(location, location.verify(), inspecting_codec())


def _has(content: SnapshotContent, uid: str) -> bool:
    return any(operator.uid == uid for operator in content.metadata.operators)


def _change(difference: EntryDifference) -> str:
    if difference.before is None:
        return ADDED
    return REMOVED if difference.after is None else CHANGED


def _described(entry: StateEntry, difference: EntryDifference) -> dict[str, Any]:
    described: dict[str, Any] = {"key_group": entry.key_group, "key": plain(entry.key)}
    if entry.namespace is not None:
        described["namespace"] = plain(entry.namespace)
    for side, one in (("before", difference.before), ("after", difference.after)):
        if one is not None:
            described[side] = plain(one.value)
    return described


def difference_lines(compared: dict[str, Any]) -> Iterator[str]:
    yield f"before: {compared['before']}"
    yield f"after:  {compared['after']}"
    if compared["equal"]:
        yield "the keyed state is the same"
    for state in compared["states"]:
        counts = ", ".join(f"{state[change]:,} {change}" for change in (ADDED, REMOVED, CHANGED) if state[change])
        yield f"operator {state['operator']}, state {state['state']} ({state['kind']}): {counts}"
        for one in state["shown"]:
            yield f"  {_line(one)}"
        hidden = state[ADDED] + state[REMOVED] + state[CHANGED] - len(state["shown"])
        if hidden:
            yield f"  … and {plural(hidden, 'more entry', 'more entries')}; --limit shows more"


def _line(one: dict[str, Any]) -> str:
    namespace = f" in {shown(one['namespace'])}" if "namespace" in one else ""
    where = f"[{one['key_group']}] {shown(one['key'])}{namespace}"
    if one["change"] == ADDED:
        return f"+ {where} = {shown(one['after'])}"
    if one["change"] == REMOVED:
        return f"- {where} = {shown(one['before'])}"
    return f"~ {where} = {shown(one['before'])} -> {shown(one['after'])}"
