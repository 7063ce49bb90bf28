"""Replays of the vectors about record acking."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from engine.protocols.acking.acker import Acker, acker_for
from engine.protocols.acking.anchoring import (
    KIND_NAMES,
    UNTRACKED,
    Ack,
    AckerMessage,
    AnchoredTuple,
    Fail,
    IdStream,
    Init,
    Reply,
    Reset,
    acks_of,
    child_of,
    fails_of,
)
from engine.protocols.acking.rotating_map import RotatingMap
from engine.protocols.acking.spout_book import ACKED, Outcome, SpoutBook
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields

_MASK = (1 << 64) - 1


def _operation(event: Vector, known: dict[str, set[str]], position: int) -> str:
    name = event.get("op")
    if name not in known:
        raise MalformedVector(f"event {position}: there is no operation {name!r}")
    check_fields(event, known[name] | {"op"}, f"event {position}")
    missing = known[name] - event.keys()
    if missing:
        raise MalformedVector(f"event {position}: {name} lacks {', '.join(sorted(missing))}")
    return str(name)


def _hexadecimal(text: Any) -> int:
    try:
        return int(text, 16) & _MASK
    except (TypeError, ValueError) as error:
        raise MalformedVector(f"{text!r} is no hexadecimal number") from error


# --- rotating_map -----------------------------------------------------------------------------------------------------


def rotating_map(vector: Vector) -> list[str]:
    given = vector["input"]
    check_fields(given, {"num_buckets", "events"}, "input")
    entries: RotatingMap[str, bool] = RotatingMap(given["num_buckets"])
    rotations: list[Vector] = []
    with_key = {"key"}
    for position, event in enumerate(given["events"]):
        match _operation(event, {"put": with_key, "get": with_key, "remove": with_key, "rotate": set()}, position):
            case "put":
                entries.put(event["key"], True)
            case "get":
                entries.get(event["key"])
            case "remove":
                entries.remove(event["key"])
            case _:
                rotations.append({"event": position, "expired": sorted(entries.rotate())})
    return _compare(
        vector, {"rotations": rotations, "remaining": [key for key, _ in entries.items()]}, sets=("remaining",)
    )


# --- acker ------------------------------------------------------------------------------------------------------------


def acker(vector: Vector) -> list[str]:
    given = vector["input"]
    check_fields(given, {"events"}, "input")
    machine = Acker()
    roots: dict[str, int] = {}
    names: dict[int, str] = {}
    emits: list[Vector] = []
    expired: list[Vector] = []
    known = {
        "init": {"root", "val", "task"},
        "ack": {"root", "val"},
        "fail": {"root"},
        "reset_timeout": {"root"},
        "tick": set[str](),
    }
    for position, event in enumerate(given["events"]):
        kind = _operation(event, known, position)
        if kind == "tick":
            gone = machine.tick()
            if gone:
                expired.append({"event": position, "roots": sorted(names[root] for root in gone)})
            continue
        root = roots.setdefault(event["root"], len(roots) + 1)
        names[root] = event["root"]
        reply = machine.receive(_acker_message(kind, root, event))
        if reply is not None:
            stream = {"ack": "ack", "fail": "fail", "reset": "reset_timeout"}[reply.kind]
            emits.append(
                {"event": position, "stream": stream, "spout_task": int(reply.task), "root": names[reply.root]}
            )
    pending = [names[root] for root in machine.pending_roots]
    return _compare(vector, {"emits": emits, "expired": expired, "pending_roots": pending}, sets=("pending_roots",))


def _acker_message(kind: str, root: int, event: Vector) -> AckerMessage:
    match kind:
        case "init":
            return Init(root, _hexadecimal(event["val"]), str(event["task"]))
        case "ack":
            return Ack(root, _hexadecimal(event["val"]))
        case "fail":
            return Fail(root)
        case _:
            return Reset(root)


# --- acker_timeout ----------------------------------------------------------------------------------------------------


class _Clocked:
    """One spout, one bolt that holds its tuples, one acker, and the clock that rotates spout and acker."""

    def __init__(self, timeout_s: int | None) -> None:
        self._timeout = timeout_s
        self._next_tick = timeout_s
        self._spout: SpoutBook[Hashable] = SpoutBook("1")
        self._acker = Acker()
        self._new_id = IdStream("acker_timeout")
        self._tuples: dict[Hashable, AnchoredTuple] = {}
        self.now: int = 0
        self.results: list[Vector] = []

    def advance(self, to: int) -> None:
        """Carry out everything that is due up to now, ticks of this instant included."""
        while self._timeout is not None and self._next_tick is not None and self._next_tick <= to:
            self.now = self._next_tick
            for outcome in self._spout.tick():
                self._tell(outcome)
            self._acker.tick()
            self._next_tick += self._timeout
        self.now = to

    def feed(self, message: Hashable) -> None:
        emission = self._spout.emit(message, 1, self._new_id)
        self._tuples[message] = emission.tuples[0]
        assert emission.init is not None
        self._send(emission.init)

    def bolt(self, message: Hashable, answer: Callable[[AnchoredTuple], Sequence[AckerMessage]]) -> None:
        if message not in self._tuples:
            raise MalformedVector(f"message {message!r} was never fed")
        for one in answer(self._tuples[message]):
            self._send(one)

    def _send(self, message: AckerMessage) -> None:
        reply = self._acker.receive(message)
        outcome = None if reply is None else self._spout.on_reply(reply)
        if outcome is not None:
            self._tell(outcome)

    def _tell(self, outcome: Outcome[Hashable]) -> None:
        result = "ack" if outcome.result == ACKED else "fail"
        self.results.append({"at": self.now, "msg": outcome.message_id, "result": result})


def acker_timeout(vector: Vector) -> list[str]:
    given = vector["input"]
    check_fields(given, {"timeout_s", "timeouts_enabled", "events"}, "input")
    world = _Clocked(given["timeout_s"] if given.get("timeouts_enabled", True) else None)
    with_message = {"at", "msg"}
    known = {
        "feed": with_message,
        "ack": with_message,
        "fail": with_message,
        "reset_timeout": with_message,
        "advance": {"at"},
    }
    for position, event in enumerate(given["events"]):
        kind = _operation(event, known, position)
        if event["at"] < world.now:
            raise MalformedVector(f"event {position} is at {event['at']}, before the one in front of it")
        world.advance(event["at"])
        match kind:
            case "feed":
                world.feed(event["msg"])
            case "ack":
                world.bolt(event["msg"], acks_of)
            case "fail":
                world.bolt(event["msg"], fails_of)
            case "reset_timeout":
                world.bolt(event["msg"], lambda one: [Reset(root) for root in one.edges])
    return _compare(vector, {"results": world.results})


# --- acker_topology ---------------------------------------------------------------------------------------------------

_BOLTS = {
    "branch",
    "identity",
    "agg",
    "ack",
    "dup_anchor",
    "unanchored_branch",
    "fail",
    "ack_every_other",
    "sink_no_ack",
}


class _Bolt:
    def __init__(self, description: Vector) -> None:
        check_fields(description, {"id", "type", "inputs", "n"}, "a bolt")
        self.id = str(description["id"])
        self.type: str = description["type"]
        if self.type not in _BOLTS:
            raise MalformedVector(f"bolt {self.id}: there is no type {self.type!r}")
        if self.type == "agg" and "n" not in description:
            raise MalformedVector(f"bolt {self.id}: agg needs n")
        self.inputs = [str(one) for one in description["inputs"]]
        self.n: int = description.get("n", 1)
        self.taken = 0
        self.held: list[AnchoredTuple] = []


class _Topology:
    """One task per component. Tuples are delivered first come, first served; messages to ackers and spouts, at once."""

    def __init__(self, given: Vector) -> None:
        self._bolts = {bolt.id: bolt for bolt in map(_Bolt, given["bolts"])}
        self.spouts: dict[str, SpoutBook[Hashable]] = {}
        ackers = given.get("acker_tasks", 1)
        for name in map(str, given["spouts"]):
            self.spouts[name] = SpoutBook(name, has_ackers=ackers > 0)
        if self.spouts.keys() & self._bolts.keys():
            raise MalformedVector("a spout and a bolt have one id")
        self._readers: dict[str, list[_Bolt]] = {name: [] for name in (*self.spouts, *self._bolts)}
        for bolt in self._bolts.values():
            for one in bolt.inputs:
                if one not in self._readers:
                    raise MalformedVector(f"bolt {bolt.id} reads {one}, which is not there")
                self._readers[one].append(bolt)
        self._ackers = [Acker() for _ in range(ackers)]
        self._new_id = IdStream("acker_topology")
        self._queue: deque[tuple[_Bolt, AnchoredTuple]] = deque()
        self.messages = {"data": 0, "init": 0, "ack": 0, "fail": 0, "to_spout": 0}
        self.results: dict[str, dict[str, list[Hashable]]] = {}

    def feed(self, spout: str, message: Hashable) -> None:
        """One message, until no work is left. Its outcome is in ``results``."""
        self.results = {"acked": {}, "failed": {}}
        if spout not in self.spouts:
            raise MalformedVector(f"there is no spout {spout}")
        readers = self._readers[spout]
        emission = self.spouts[spout].emit(message, len(readers), self._new_id)
        for bolt, one in zip(readers, emission.tuples, strict=True):
            self._deliver(bolt, one)
        if emission.init is not None:
            self._say(emission.init)
        if emission.outcome is not None:
            self._tell(spout, emission.outcome)
        while self._queue:
            self._execute(*self._queue.popleft())

    def _deliver(self, bolt: _Bolt, one: AnchoredTuple) -> None:
        self.messages["data"] += 1
        self._queue.append((bolt, one))

    def _emit(self, bolt: _Bolt, anchors: Sequence[AnchoredTuple]) -> None:
        for reader in self._readers[bolt.id]:
            self._deliver(reader, child_of(anchors, self._new_id) if anchors else UNTRACKED)

    def _execute(self, bolt: _Bolt, one: AnchoredTuple) -> None:
        bolt.taken += 1
        match bolt.type:
            case "branch" | "identity":
                for _ in range(bolt.n):
                    self._emit(bolt, [one])
                self._say(*acks_of(one))
            case "agg":
                bolt.held.append(one)
                if len(bolt.held) == bolt.n:
                    held, bolt.held = bolt.held, []
                    self._emit(bolt, held)
                    for each in held:
                        self._say(*acks_of(each))
            case "dup_anchor":
                self._emit(bolt, [one, one])
                self._say(*acks_of(one))
            case "unanchored_branch":
                for _ in range(bolt.n):
                    self._emit(bolt, [])
                self._say(*acks_of(one))
            case "ack":
                self._say(*acks_of(one))
            case "fail":
                self._say(*fails_of(one))
            case "ack_every_other":
                if bolt.taken % 2:
                    self._say(*acks_of(one))

    def _say(self, *messages: AckerMessage) -> None:
        for message in messages:
            self.messages[KIND_NAMES[type(message)]] += 1
            reply = self._ackers[acker_for(message.root, len(self._ackers))].receive(message)
            if reply is not None:
                self._answer(reply)

    def _answer(self, reply: Reply) -> None:
        self.messages["to_spout"] += 1
        outcome = self.spouts[reply.task].on_reply(reply)
        if outcome is not None:
            self._tell(reply.task, outcome)

    def _tell(self, spout: str, outcome: Outcome[Hashable]) -> None:
        kind = "acked" if outcome.result == ACKED else "failed"
        self.results[kind].setdefault(spout, []).append(outcome.message_id)


def acker_topology(vector: Vector) -> list[str]:
    """Whole topologies: the outcome of each message, and its cost."""
    given = vector["input"]
    check_fields(given, {"spouts", "bolts", "feeds", "acker_tasks"}, "input")
    topology = _Topology(given)
    per_feed = []
    for feed in given["feeds"]:
        check_fields(feed, {"spout", "msg"}, "a feed")
        topology.feed(str(feed["spout"]), feed["msg"])
        per_feed.append(topology.results)
    pending = [message for book in topology.spouts.values() for message in book.pending]
    return _compare(
        vector,
        {"per_feed": per_feed, "messages": topology.messages, "still_pending": pending},
        sets=("still_pending",),
        parts=("messages",),
    )


def _compare(
    vector: Vector, observed: dict[str, Any], *, sets: Sequence[str] = (), parts: Sequence[str] = ()
) -> list[str]:
    """``sets``: lists whose order does not count; ``parts``: maps of which not every key need be expected."""
    expect, comparison = vector["expect"], Comparison()
    check_fields(expect, observed, "expect")
    for name, wanted in expect.items():
        if name in parts:
            comparison.fields(wanted, observed[name], f"{name}.")
        else:
            comparison.field(name, wanted, observed[name], as_set=name in sets)
    return comparison.finish()


KINDS: dict[str, Callable[[Vector], list[str]]] = {
    "acker": acker,
    "acker_topology": acker_topology,
    "acker_timeout": acker_timeout,
    "rotating_map": rotating_map,
}
