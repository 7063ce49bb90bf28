"""A stand-in for the client library of Kafka, with a broker in memory that keeps the rules of transactions: epochs,
fencing, isolation, and offsets of groups that are part of a transaction. It has the names and errors of the real one,
as far as the connector uses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class KafkaError(Exception):
    """Like the client's: a code with flags."""

    _PARTITION_EOF = -191

    def __init__(self, name: str, *, retriable: bool = False, abort: bool = False, fatal: bool = False) -> None:
        super().__init__(name)
        self._name, self._flags = name, (retriable, abort, fatal)

    def name(self) -> str:
        return self._name

    def code(self) -> int:
        return self._PARTITION_EOF if self._name == "_PARTITION_EOF" else 1

    def str(self) -> str:
        return f"it says {self._name}"

    def retriable(self) -> bool:
        return self._flags[0]

    def txn_requires_abort(self) -> bool:
        return self._flags[1]

    def fatal(self) -> bool:
        return self._flags[2]


class KafkaException(Exception):
    """Carries a ``KafkaError``."""


@dataclass
class TopicPartition:
    topic: str
    partition: int
    offset: int = -1001
    error: KafkaError | None = None


@dataclass
class Message:
    stored: Stored | None
    at: int
    failed: KafkaError | None = None

    def error(self) -> KafkaError | None:
        return self.failed

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        assert self.stored is not None
        return self.stored.value

    def timestamp(self) -> tuple[int, int]:
        assert self.stored is not None
        return (1, self.stored.time_ms)


@dataclass
class Stored:
    value: bytes | None
    key: bytes | None
    time_ms: int
    owner: tuple[str, int] | None
    state: str
    """``open``, ``committed``, ``aborted`` or ``marker``."""


@dataclass
class Broker:
    """``fail(request) -> KafkaError | ("after", KafkaError) | None`` decides the fate of each request."""

    topics: dict[str, list[list[Stored]]] = field(default_factory=lambda: {"out": [[]]})
    epochs: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    group_offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    consumers: int = 0
    deleted_below: int = 0
    fail: Callable[[str], Any] = lambda request: None
    requests: list[str] = field(default_factory=list)

    def end(self, owner: tuple[str, int], state: str) -> None:
        for partitions in self.topics.values():
            for entries in partitions:
                mine = [one for one in entries if one.owner == owner and one.state == "open"]
                for one in mine:
                    one.state = state
                if mine:
                    entries.append(Stored(None, None, 0, owner, "marker"))

    def visible(self, topic: str = "out") -> list[bytes | None]:
        return [one.value for entries in self.topics[topic] for one in entries if one.state == "committed"]


class FakeClient:
    """The module."""

    KafkaError, KafkaException, TopicPartition = KafkaError, KafkaException, TopicPartition

    def __init__(self) -> None:
        self.broker = broker = Broker()

        def ask(request: str, carry_out: Callable[[], Any]) -> Any:
            broker.requests.append(request)
            fate = broker.fail(request)
            if isinstance(fate, KafkaError):
                raise KafkaException(fate)
            result = carry_out()
            if fate is not None:
                raise KafkaException(fate[1])
            return result

        class Producer:
            def __init__(self, settings: dict[str, Any]) -> None:
                self.settings, self.epoch = settings, -1
                self.id = settings.get("transactional.id")
                self.is_open = False
                self.staged: dict[str, int] = {}
                self.reports: list[Callable[[], None]] = []

            def init_transactions(self, timeout: float) -> None:
                def carry_out() -> None:
                    self.epoch = broker.epochs.get(self.id, -1) + 1
                    broker.epochs[self.id] = self.epoch
                    for epoch in range(self.epoch):
                        broker.end((self.id, epoch), "aborted")

                ask("init", carry_out)

            def check(self) -> None:
                if self.id is not None and broker.epochs[self.id] != self.epoch:
                    raise KafkaException(KafkaError("_FENCED", fatal=True))

            def begin_transaction(self) -> None:
                assert not self.is_open
                self.is_open, self.staged = True, {}

            def produce(
                self,
                topic: str,
                value: bytes | None,
                key: bytes | None,
                *,
                on_delivery: Any,
                partition: int = 0,
                timestamp: int = -1,
            ) -> None:
                fate = broker.fail("produce")
                owner = None if self.id is None else (self.id, self.epoch)
                if isinstance(fate, KafkaError):
                    self.reports.append(lambda: on_delivery(fate, None))
                    return
                self.check()
                state = "committed" if owner is None else "open"
                broker.topics[topic][partition].append(Stored(value, key, timestamp, owner, state))
                self.reports.append(lambda: on_delivery(None, None))

            def poll(self, timeout: float) -> int:
                reports, self.reports = self.reports, []
                for report in reports:
                    report()
                return len(reports)

            def flush(self, timeout: float) -> int:
                self.poll(0)
                return 1 if broker.fail("flush") else 0

            def send_offsets_to_transaction(self, places: list[TopicPartition], group: str, timeout: float) -> None:
                ask("mark", lambda: (self.check(), self.staged.__setitem__(group, places[0].offset)))

            def commit_transaction(self, timeout: float) -> None:
                def carry_out() -> None:
                    if not self.is_open:
                        return
                    self.check()
                    broker.end((self.id, self.epoch), "committed")
                    broker.offsets.update(self.staged)
                    self.is_open = False

                ask("commit", carry_out)

            def abort_transaction(self, timeout: float) -> None:
                def carry_out() -> None:
                    self.check()
                    broker.end((self.id, self.epoch), "aborted")
                    self.is_open = False

                ask("abort", carry_out)

        class Consumer:
            def __init__(self, settings: dict[str, Any]) -> None:
                self.settings, self.place, self.told_end = settings, TopicPartition("", 0), False
                broker.consumers += 1

            def consumer_group_metadata(self) -> str:
                return str(self.settings["group.id"])

            def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
                offset = broker.offsets.get(self.settings["group.id"], -1001)
                ask("committed", lambda: None)
                return [TopicPartition(places[0].topic, 0, offset)]

            def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
                def carry_out() -> list[TopicPartition]:
                    for place in offsets:
                        key = (self.settings["group.id"], place.topic, place.partition)
                        broker.group_offsets[key] = place.offset
                    return offsets

                assert not asynchronous
                answered: list[TopicPartition] = ask("commit-offsets", carry_out)
                return answered

            def list_topics(self, topic: str, timeout: float) -> Any:
                known = broker.topics.get(topic)
                error = KafkaError("UNKNOWN_TOPIC_OR_PART") if known is None else None
                partitions = dict.fromkeys(range(len(known or ())))
                found = type("Topic", (), {"error": error, "partitions": partitions})
                return type("Metadata", (), {"topics": {topic: found}})

            def get_watermark_offsets(self, place: TopicPartition, timeout: float, cached: bool) -> tuple[int, int]:
                fate = broker.fail("watermarks")
                if isinstance(fate, KafkaError):
                    raise KafkaException(fate)
                return broker.deleted_below, len(broker.topics[place.topic][place.partition])

            def assign(self, places: list[TopicPartition]) -> None:
                self.place = places[0]

            def consume(self, count: int, timeout: float) -> list[Message]:
                entries, found = broker.topics[self.place.topic][self.place.partition], []
                if self.place.offset < broker.deleted_below:
                    return [Message(None, -1, KafkaError("_AUTO_OFFSET_RESET"))]
                while len(found) < count and self.place.offset < len(entries):
                    one = entries[self.place.offset]
                    if self.settings["isolation.level"] == "read_committed" and one.state == "open":
                        break
                    is_seen = one.state == "committed" or (
                        self.settings["isolation.level"] == "read_uncommitted" and one.state != "marker"
                    )
                    if is_seen:
                        found.append(Message(one, self.place.offset))
                    self.place.offset += 1
                if not found:
                    return [Message(None, self.place.offset, KafkaError("_PARTITION_EOF"))]
                return found

            def close(self) -> None:
                broker.consumers -= 1

        self.Producer, self.Consumer = Producer, Consumer
