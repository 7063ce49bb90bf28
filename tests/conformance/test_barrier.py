"""Barrier handling against the recorded scenarios, and the replay of scenarios against wrong expectations."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from engine.checkpoint.barriers import ChannelCapture
from engine.checkpoint.barriers.alignment import BarrierAlignment
from engine.elements.batch import Batch
from engine.runtime.channels import Channel
from engine.runtime.channels.output_queue import OutputQueue
from tests.conformance.barrier import check
from tests.conformance.barrier.observed import Vector
from tests.conformance.compare import MalformedVector
from tests.conformance.complaints import check_each
from tests.conformance.runner import DATA, load

RECORDED: list[Vector] = load(DATA / "barrier.json")
BY_NAME = {vector["name"]: vector for vector in RECORDED}
WRITTEN = {vector["name"]: vector for vector in load(DATA / "written" / "barrier.json")}


def vector_of(scope: str, mode: str, channels: int, given: list[list[Any]], **more: Any) -> Vector:
    """A scenario written here: fields that are not given are expected to be empty."""
    expect = {
        "triggered": [],
        "aborted": [],
        "output_order": [],
        "output_order_scope": "total",
        "inflight": {},
        "inflight_scope": "total",
        "pending_at_end": [],
        "notes": "",
    }
    expect |= {name: value for name, value in more.items() if name not in ("delivery", "timeout_ms")}
    return {
        "scope": scope,
        "mode": mode,
        "channels": channels,
        "input": given,
        "delivery": more.get("delivery", "manual"),
        "timeout_ms": more.get("timeout_ms"),
        "checkpoints_after_tasks_finish": True,
        "expect": expect,
    }


@pytest.mark.parametrize("vector", [*RECORDED, *WRITTEN.values()], ids=[*BY_NAME, *WRITTEN])
def test_scenario(vector: Vector) -> None:
    """The engine decides as the scenario says, recorded or written, in the same order, in every field."""
    assert check(vector) == []


# --- wrong expectations are found -----------------------------------------------------------------------------------


def wrong(value: Any) -> Any:
    """Another value of the same shape."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"not {value}"
        case [["ckpt" | "abort" | "eop" | "barrier" | "cancel_marker" as kind, number], *rest]:
            return [[kind, number + 1], *rest]
        case [[position, inner], *rest] if isinstance(position, int):
            return [[position, wrong(inner)], *rest]
        case [first, *rest]:
            return [wrong(first), *rest]
        case []:
            return ["nothing of the kind"]
        case dict():
            return {key: wrong(one) for key, one in value.items()} or {"99": []}
    raise AssertionError(value)


NOT_COMPARED = ("notes", "output_order_scope", "inflight_scope", "source_channels")


def compared_fields(vector: Vector) -> list[str]:
    return [field for field in vector["expect"] if field not in NOT_COMPARED]


def test_every_field_of_the_format_is_tried() -> None:
    """Each field is met in at least one scenario."""
    assert {field for vector in (BY_NAME | WRITTEN).values() for field in compared_fields(vector)} == {
        "triggered",
        "aborted",
        "triggered_any",
        "aborted_any",
        "output_order",
        "event_order",
        "inflight",
        "inflight_counts_after",
        "pending_at_end",
        "abort_reasons",
        "abort_callback_order",
        "ckpt_kind",
        "metrics",
        "blocked_after",
        "resumed_after",
        "resumed_channels",
        "downstream",
        "channel_state_failed",
    }


def wrong_and_not_reported(vector: Vector) -> Iterator[str]:
    for field in compared_fields(vector):
        changed = deepcopy(vector)
        changed["expect"][field] = wrong(vector["expect"][field])
        found = check(changed)
        if not found or not all(text.startswith(field) for text in found):
            yield f"{field} alone is wrong, and the replay says {found}"


@pytest.mark.parametrize("vectors", [BY_NAME, WRITTEN], ids=["recorded", "written"])
def test_a_wrong_expectation_is_reported(vectors: dict[str, Vector]) -> None:
    """A scenario with one field changed fails, and only in that field."""
    check_each(vectors.values(), wrong_and_not_reported)


def test_a_missing_and_a_superfluous_entry_are_reported() -> None:
    """Lists and maps are compared whole: a missing entry counts as much as a wrong one."""
    for vector in RECORDED:
        for field in ("triggered", "aborted", "output_order", "inflight", "pending_at_end"):
            if vector["expect"][field]:
                changed = deepcopy(vector)
                changed["expect"][field] = type(vector["expect"][field])()
                assert check(changed), (vector["name"], field)


def test_order_matters_as_far_as_the_scope_says() -> None:
    """Records of one channel may not be swapped in either scope; those of two channels only in ``per_channel``."""
    vector = deepcopy(BY_NAME["aligned_multi_channel_no_barriers"])
    order = vector["expect"]["output_order"]
    assert order[:3] == ["s0", "s1", "s2"]
    order[1:3] = ["s2", "s1"]
    assert check(vector)
    vector["expect"]["output_order_scope"] = "per_channel"
    del vector["expect"]["event_order"]
    assert check(vector) == []
    order[:3] = ["s1", "s0", "s2"]
    assert check(vector)


@pytest.mark.parametrize(
    "change",
    [
        {"scope": "elsewhere"},
        {"mode": "hopeful"},
        {"input": [["jump", 0]]},
        {"input": [["resume", 0]]},
        {"input": [["barrier", 0, 1, {"kind": "loose"}]]},
        {"input": [["barrier", 0, 1, {"kind": "aligned_timeout"}]]},
        {"scope": "output", "input": [["poll_announcement", 0]]},
        {"expect": {"triggered": [], "colour": "blue"}},
        {"expect": {"notes": "nothing is expected"}},
        {"expect": {"output_order": [], "output_order_scope": "whatever"}},
    ],
)
def test_what_the_format_does_not_have_is_refused(change: Vector) -> None:
    """A part that could not be replayed or compared does not count as passed."""
    with pytest.raises(MalformedVector):
        check(vector_of("input", "aligned", 1, []) | change)


REFUSED = {
    "there is no channel -1": {"input": [["rec", -1, "a"]]},
    "there is no channel 1": {"input": [["eop", 1]]},
    "there is no channel True": {"input": [["eop", True]]},
    "local_channels: there is no channel 3": {"local_channels": [3]},
    "local_channels must be a list": {"local_channels": "0"},
    r"needs 2 arguments \(channel, id\)": {"input": [["cancel", 0, 1, 2]]},
    r"needs 2 arguments \(channel, name\)": {"input": [["rec"]]},
    r"input\[0\] is no operation": {"input": [[]]},
    "the id must be a number from 0": {"input": [["barrier", 0, -1]]},
    "the amount must be a number": {"input": [["advance_ms", "5"]]},
    "the name must be a text": {"input": [["rec", 0, 5]]},
    "unknown option 'size'": {"input": [["rec", 0, "a", {"size": 1}]]},
    "unknown option 'colour'": {"input": [["barrier", 0, 1, {"colour": "blue"}]]},
    "needs manual delivery": {"delivery": "eager", "input": [["poll", 1]]},
    "channel 0 has ended already": {"input": [["eop", 0], ["rec", 0, "a"]]},
    "there are two records 'a'": {"input": [["rec", 0, "a"], ["rec", 0, "a"]]},
    "unknown delivery": {"delivery": "lazy"},
    "unknown capability": {"requires": ["flight"]},
    "true or false": {"checkpoints_after_tasks_finish": "yes"},
    "channels must be a number above 0, but it is 0": {"channels": 0},
    "channels must be a number above 0, but it is '2'": {"channels": "2"},
    "expect.triggered must be a list": {"expect": {"triggered": "1"}},
    "expect.metrics must be an object by checkpoint id": {"expect": {"metrics": {"one": {}}}},
    r"expect.blocked_after must hold \[position in input, value\]": {"expect": {"blocked_after": [[-1, []]]}},
}


@pytest.mark.parametrize(("said", "change"), REFUSED.items(), ids=REFUSED)
def test_slips_are_refused_with_a_reason(said: str, change: Vector) -> None:
    """A vector that could be replayed only with another meaning is refused; the message names the slip and place."""
    with pytest.raises(MalformedVector, match=said):
        check(vector_of("input", "aligned", 1, []) | change)


def test_the_scope_is_the_input_side_unless_said_otherwise() -> None:
    """The scope has a default; no other field that decides how a vector is replayed has one."""
    vector = vector_of("input", "aligned", 1, [["rec", 0, "a"], ["poll_all"]], output_order=["a"])
    del vector["scope"]
    assert check(vector) == []


def test_yes_is_not_one() -> None:
    """A truth value in the place of a number equals no number."""
    vector = vector_of("input", "aligned", 1, [["barrier", 0, 1], ["poll_all"]], output_order=[["ckpt", 1]])
    vector["expect"]["triggered"] = [True]
    assert len(check(vector)) == 1


def test_missed_polls_are_reported() -> None:
    """An element that should not be there, and an announcement that should, are mismatches of their own."""
    assert check(vector_of("input", "aligned", 1, [["rec", 0, "a"], ["expect_empty"]])) != []
    assert check(vector_of("output", "aligned", 1, [["rec", 0, "a"], ["expect_empty"]])) != []
    assert check(vector_of("input", "aligned_timeout", 1, [["poll_announcement", 0]], timeout_ms=1)) != []


# --- a wrong engine is found ----------------------------------------------------------------------------------------


def failures() -> int:
    """How many recorded scenarios fail."""

    def goes_wrong(vector: Vector) -> bool:
        try:
            return bool(check(vector))
        except Exception:
            return True

    return sum(map(goes_wrong, RECORDED))


def test_an_engine_that_never_resumes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels that stay blocked make many scenarios fail."""
    monkeypatch.setattr(BarrierAlignment, "resume", lambda self, channels, out: None)
    assert failures() > 10


def test_an_engine_that_captures_too_little_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels that ignore the records queued at the start, or those that arrive later, are found."""
    with monkeypatch.context() as patch:
        patch.setattr(Channel, "start_capture", lambda self, checkpoint_id: [])
        assert failures() > 3
    monkeypatch.setattr(ChannelCapture, "captures", False)
    assert failures() > 1


def test_an_engine_that_stores_what_the_barrier_did_not_overtake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output queue that fills its slot with all its records is found."""
    original = OutputQueue._fill_slot

    def fill(self: OutputQueue, batches: list[Batch]) -> None:
        original(self, [*batches, Batch(["too much"])])

    monkeypatch.setattr(OutputQueue, "_fill_slot", fill)
    assert failures() == 2
