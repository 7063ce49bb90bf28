"""Further vectors about record acking, worked out from the rules, for what the recorded ones leave untouched."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.compare import MalformedVector, Vector
from tests.conformance.sinks.acking import KINDS

A, B, AB = "0x5", "0x3", "0x6"


def acker(events: list[Vector], **expect: Any) -> Vector:
    """A vector of one acker."""
    return {"kind": "acker", "input": {"events": events}, "expect": expect}


def topology(bolts: list[Vector], feeds: list[Any], spouts: tuple[str, ...] = ("1",), **more: Any) -> Vector:
    """A vector of a topology. ``feeds``: messages of spout 1, or pairs of spout and message."""
    pairs = [feed if isinstance(feed, tuple) else ("1", feed) for feed in feeds]
    given = {"spouts": list(spouts), "bolts": bolts, "feeds": [{"spout": one, "msg": msg} for one, msg in pairs]}
    ackers = {name: more.pop(name) for name in ("acker_tasks",) if name in more}
    return {"kind": "acker_topology", "input": {**given, **ackers}, "expect": more}


def bolt(name: str, kind: str, *inputs: str, **more: Any) -> Vector:
    """A bolt."""
    return {"id": name, "type": kind, "inputs": list(inputs), **more}


def acked(*messages: Any, spout: str = "1") -> Vector:
    """What one feed has come to."""
    return {"acked": {spout: list(messages)} if messages else {}, "failed": {}}


INIT = {"op": "init", "root": "r", "val": A, "task": 7}
TICK = {"op": "tick"}
RESET = {"op": "reset_timeout", "root": "r"}
FAIL = {"op": "fail", "root": "r"}

VECTORS: dict[str, Vector] = {
    "init with value 0 is complete at once": acker(
        [{**INIT, "val": "0x0"}],
        emits=[{"event": 0, "stream": "ack", "spout_task": 7, "root": "r"}],
        expired=[],
        pending_roots=[],
    ),
    "reset of a pending root is passed on and keeps it": acker(
        [INIT, TICK, TICK, RESET, TICK, TICK],
        emits=[{"event": 3, "stream": "reset_timeout", "spout_task": 7, "root": "r"}],
        expired=[],
        pending_roots=["r"],
    ),
    "an ack does not keep a root": acker(
        [INIT, TICK, TICK, {"op": "ack", "root": "r", "val": B}, TICK],
        emits=[],
        expired=[{"event": 4, "roots": ["r"]}],
        pending_roots=[],
    ),
    "fail before init is told with init": acker(
        [FAIL, INIT],
        emits=[{"event": 1, "stream": "fail", "spout_task": 7, "root": "r"}],
        expired=[],
        pending_roots=[],
    ),
    "a value of 0 comes before a failure": acker(
        [FAIL, {"op": "ack", "root": "r", "val": A}, INIT],
        emits=[{"event": 2, "stream": "ack", "spout_task": 7, "root": "r"}],
        expired=[],
        pending_roots=[],
    ),
    "fail keeps an entry": acker(
        [FAIL, TICK, TICK, FAIL, TICK, TICK, TICK],
        emits=[],
        expired=[{"event": 6, "roots": ["r"]}],
        pending_roots=[],
    ),
    "two roots are in one rotation": acker(
        [{**INIT, "root": "s"}, INIT, TICK, TICK, TICK],
        emits=[],
        expired=[{"event": 4, "roots": ["r", "s"]}],
        pending_roots=[],
    ),
    "two spouts meet in an aggregate": topology(
        [bolt("sum", "agg", "1", "2", n=2), bolt("end", "ack", "sum")],
        [("1", "a"), ("2", "b")],
        spouts=("1", "2"),
        per_feed=[acked(), {"acked": {"1": ["a"], "2": ["b"]}, "failed": {}}],
        messages={"data": 3, "init": 2, "ack": 4, "fail": 0, "to_spout": 2},
        still_pending=[],
    ),
    "what an aggregate of two roots fails, fails both": topology(
        [bolt("sum", "agg", "1", n=2), bolt("end", "fail", "sum")],
        ["a", "b"],
        per_feed=[acked(), {"acked": {}, "failed": {"1": ["a", "b"]}}],
        messages={"data": 3, "init": 2, "ack": 2, "fail": 2, "to_spout": 2},
        still_pending=[],
    ),
    "an aggregate that is not full keeps its roots pending": topology(
        [bolt("sum", "agg", "1", n=3), bolt("end", "ack", "sum")],
        ["a", "b"],
        per_feed=[acked(), acked()],
        still_pending=["a", "b"],
    ),
    "an untracked message is delivered and nobody is told": topology(
        [bolt("copy", "branch", "1", n=2), bolt("end", "fail", "copy")],
        [None],
        per_feed=[acked()],
        messages={"data": 3, "init": 0, "ack": 0, "fail": 0, "to_spout": 0},
        still_pending=[],
    ),
    "a message to nobody is complete": topology(
        [],
        ["a"],
        per_feed=[acked("a")],
        messages={"data": 0, "init": 1, "ack": 0, "fail": 0, "to_spout": 1},
    ),
    "several ackers share the roots": topology(
        [bolt("copy", "branch", "1", n=3), bolt("end", "ack", "copy")],
        list(range(9)),
        acker_tasks=4,
        per_feed=[acked(number) for number in range(9)],
        messages={"data": 36, "init": 9, "ack": 36, "fail": 0, "to_spout": 9},
        still_pending=[],
    ),
    "a bolt that never acknowledges leaves its roots pending": topology(
        [bolt("end", "sink_no_ack", "1")],
        ["a"],
        per_feed=[acked()],
        messages={"data": 1, "init": 1, "ack": 0, "fail": 0, "to_spout": 0},
        still_pending=["a"],
    ),
    "a diamond with an anchor that is named twice": topology(
        [bolt("l", "dup_anchor", "1"), bolt("r", "identity", "1"), bolt("end", "ack", "l", "r")],
        ["a"],
        per_feed=[acked("a")],
        messages={"data": 4, "init": 1, "ack": 4, "fail": 0, "to_spout": 1},
    ),
    "a failure is told at once": {
        "kind": "acker_timeout",
        "input": {
            "timeout_s": 10,
            "timeouts_enabled": True,
            "events": [
                {"at": 3, "op": "feed", "msg": 1},
                {"at": 4, "op": "fail", "msg": 1},
                {"at": 60, "op": "advance"},
            ],
        },
        "expect": {"results": [{"at": 4, "msg": 1, "result": "fail"}]},
    },
    "nothing times out when timeouts are off": {
        "kind": "acker_timeout",
        "input": {
            "timeout_s": 10,
            "timeouts_enabled": False,
            "events": [{"at": 0, "op": "feed", "msg": 1}, {"at": 500, "op": "ack", "msg": 1}],
        },
        "expect": {"results": [{"at": 500, "msg": 1, "result": "ack"}]},
    },
    "a tick that is due at the instant of an event comes first": {
        "kind": "acker_timeout",
        "input": {
            "timeout_s": 10,
            "timeouts_enabled": True,
            "events": [{"at": 10, "op": "feed", "msg": 1}, {"at": 30, "op": "ack", "msg": 1}],
        },
        "expect": {"results": [{"at": 30, "msg": 1, "result": "fail"}]},
    },
    "a put moves a key to the newest bucket": {
        "kind": "rotating_map",
        "input": {
            "num_buckets": 2,
            "events": [
                {"op": "put", "key": "a"},
                {"op": "put", "key": "b"},
                {"op": "rotate"},
                {"op": "put", "key": "a"},
                {"op": "rotate"},
                {"op": "rotate"},
            ],
        },
        "expect": {
            "rotations": [
                {"event": 2, "expired": []},
                {"event": 4, "expired": ["b"]},
                {"event": 5, "expired": ["a"]},
            ],
            "remaining": [],
        },
    },
}


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name: str) -> None:
    """The machines do what the rules say."""
    vector = VECTORS[name]
    assert KINDS[vector["kind"]](vector) == []


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (acker([{"op": "nack", "root": "r"}], emits=[]), "there is no operation 'nack'"),
        (acker([{"op": "init", "root": "r", "val": A}], emits=[]), "init lacks task"),
        (acker([{**FAIL, "val": A}], emits=[]), "unknown fields: val"),
        (acker([{"op": "ack", "root": "r", "val": 5}], emits=[]), "5 is no hexadecimal number"),
        (acker([INIT], replies=[]), "unknown fields: replies"),
        (topology([bolt("x", "juggle", "1")], ["a"], per_feed=[]), "there is no type 'juggle'"),
        (topology([bolt("x", "ack", "9")], ["a"], per_feed=[]), "reads 9, which is not there"),
        (topology([bolt("x", "agg", "1")], ["a"], per_feed=[]), "agg needs n"),
    ],
)
def test_what_is_not_documented_is_no_pass(vector: Vector, message: str) -> None:
    """A vector that nobody understands is an error."""
    with pytest.raises(MalformedVector, match=message):
        KINDS[vector["kind"]](vector)


def test_a_wrong_expectation_is_a_mismatch() -> None:
    """The comparison compares."""
    vector = topology([bolt("end", "ack", "1")], ["a"], per_feed=[acked()], messages={"data": 2})
    assert len(KINDS["acker_topology"](vector)) == 2
