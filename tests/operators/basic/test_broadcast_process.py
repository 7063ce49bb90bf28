"""Broadcast process functions: read-only and writable sides, the same copy everywhere, restore and rescale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import UserFunctionError
from operators.basic import (
    BroadcastProcessFunction,
    BroadcastProcessOperator,
    KeyedBroadcastProcessFunction,
    KeyedBroadcastProcessOperator,
)
from operators.basic.two_input_functions import (
    BroadcastReadContext,
    BroadcastWriteContext,
    KeyedBroadcastReadContext,
    KeyedBroadcastWriteContext,
)
from state_backends.base import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
    key_group_for,
)
from tests.operators.harness import MAX_PARALLELISM, Checkpoint, Harness
from tests.operators.keyed_cluster import KeyedCluster

Record = tuple[str, int]
COUNT = ValueStateDescriptor("count")


def first(record: Record) -> str:
    return record[0]


class Translate(BroadcastProcessFunction):
    """Replaces words as the broadcast stream says; ``None`` removes a word."""

    def process_element(self, value: str, ctx: BroadcastReadContext) -> Iterable[Any]:
        words = ctx.broadcast_state("words")
        return [words.get(value) if words.contains(value) else value]

    def process_broadcast_element(self, value: Any, ctx: BroadcastWriteContext) -> Iterable[Any]:
        words = ctx.broadcast_state(MapStateDescriptor("words"))
        word, translation = value
        if translation is None:
            words.remove(word)
        else:
            words.put(word, translation)
        return [("now", words.entries(), ctx.timestamp_ms, ctx.current_watermark_ms)]


def translator(**options: Any) -> Harness:
    return Harness(BroadcastProcessOperator(Translate, ["words"]), **options)


def test_the_data_side_reads_what_the_broadcast_side_writes() -> None:
    """A broadcast element changes what later data reads, and may emit records, too."""
    harness = translator()
    harness.watermark(3)
    harness.process(["a", "b"], [1, 2])
    harness.process_2([("b", "B"), ("a", "A")], [4, 5])
    harness.process(["a", "b"], [6, 7])
    harness.process_2([("b", None)])
    harness.process(["b"])

    assert harness.take() == [
        ("watermark", 3),
        Batch(["a", "b"], [1, 2]),
        Batch([("now", [("b", "B")], 4, 3), ("now", [("a", "A"), ("b", "B")], 5, 3)], [4, 5]),
        Batch(["A", "B"], [6, 7]),
        Batch([("now", [("a", "A")], None, 3)]),
        Batch(["b"]),
    ]
    assert harness.operator.fingerprint() == 3


@pytest.mark.parametrize("change", ["put", "put_all", "remove", "clear"])
def test_the_data_side_cannot_change_broadcast_state(change: str) -> None:
    """Another subtask would not see it, so every way to change is refused, and nothing changes."""

    class Writes(Translate):
        def process_element(self, value: str, ctx: BroadcastReadContext) -> Iterable[Any]:
            state = ctx.broadcast_state("words")
            assert (state.keys(), state.values(), state.entries(), state.is_empty()) == (["a"], [1], [("a", 1)], False)
            arguments: dict[str, tuple[Any, ...]] = {"put": ("x", 1), "put_all": ({"x": 1},), "remove": ("a",)}
            getattr(state, change)(*arguments.get(change, ()))
            return []

    harness = Harness(BroadcastProcessOperator(Writes, ["words"]))
    harness.process_2([("a", 1)])
    with pytest.raises(UserFunctionError, match="broadcast state 'words' can only be read while data is processed"):
        harness.process(["a"])

    assert harness.context.operator.broadcast_state("words").entries() == [("a", 1)]


def test_an_undeclared_state_is_refused_by_name() -> None:
    """The error lists the states that there are."""
    operator = BroadcastProcessOperator(Translate, ["rules", "limits"])
    with pytest.raises(UserFunctionError, match=r"no broadcast state 'words'; stream\.broadcast"):
        Harness(operator).process(["a"])


def test_every_new_subtask_gets_a_copy() -> None:
    """After a restore at another parallelism each subtask has all entries; a change in one is its own."""
    two = [translator(subtask=subtask, parallelism=2) for subtask in range(2)]
    checkpoint = Checkpoint(1)
    for harness in two:
        harness.process_2([("a", "A"), ("b", "B")])
        harness.snapshot(1, checkpoint)
    five = [translator(subtask=subtask, parallelism=5, restored=checkpoint) for subtask in range(5)]
    five[3].process_2([("a", None)])

    for harness in five:
        harness.process(["a", "b"])
    assert [harness.take_values()[-2:] for harness in five] == [["A", "B"]] * 3 + [["a", "B"]] + [["A", "B"]]


class Thresholds(KeyedBroadcastProcessFunction):
    """Counts records per key, and emits the count when it passes a limit that the broadcast stream set."""

    def open(self, ctx: KeyedBroadcastReadContext) -> None:
        self.count = ctx.value_state("count", 0)

    def process_element(self, value: Record, ctx: KeyedBroadcastReadContext) -> Iterable[Any]:
        self.count.update(self.count.get() + value[1])
        ctx.register_event_time_timer(100)
        limit = ctx.broadcast_state("limits").get(ctx.current_key)
        return [(ctx.current_key, self.count.get())] if limit is not None and self.count.get() >= limit else []

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastWriteContext) -> Iterable[Any]:
        limits = ctx.broadcast_state("limits")
        if value == "counts":
            found: list[Any] = []
            ctx.apply_to_keyed_state(COUNT, lambda key, count: found.append((key, count.get())))
            return found
        if value == "reset":
            ctx.apply_to_keyed_state(COUNT, lambda key, count: count.clear())
            return []
        limits.put(*value)
        return []

    def on_timer(self, timestamp_ms: int, ctx: KeyedBroadcastReadContext) -> Iterable[Any]:
        return [(ctx.current_key, self.count.get(), ctx.broadcast_state("limits").entries())]


def keyed_operator() -> KeyedBroadcastProcessOperator:
    return KeyedBroadcastProcessOperator(Thresholds, ["limits"])


def test_keyed_data_meets_broadcast_state() -> None:
    """State and timers per key on the data side, read-only broadcast state there and in timers."""
    harness = Harness(keyed_operator(), key=first)
    harness.process_2([("a", 3)])
    harness.process([("a", 1), ("b", 5), ("a", 2)], [1, 2, 3])
    assert harness.take_values() == [("a", 3)]

    harness.watermark(100)

    assert harness.take() == [Batch([("a", 3, [("a", 3)]), ("b", 5, [("a", 3)])], [100, 100]), ("watermark", 100)]


def test_apply_to_keyed_state_visits_every_key() -> None:
    """All keys with content, in the order of key groups and keys; clearing them on the way misses none."""
    harness = Harness(keyed_operator(), key=first)
    harness.process([(key, 1) for key in "hgfedcba"])
    harness.process_2(["counts"])
    by_group = sorted("abcdefgh", key=lambda key: (key_group_for(key, MAX_PARALLELISM), key))
    assert harness.take_values() == [(key, 1) for key in by_group]
    harness.process_2(["reset", "counts"])

    assert harness.take_values() == []
    assert harness.context.keyed.num_entries("count") == 0


def test_apply_takes_any_kind_of_state() -> None:
    """Value, list, map, reducing and aggregating state are all reached, by the descriptor of their name."""
    seen: list[Any] = []

    class AllKinds(KeyedBroadcastProcessFunction):
        def open(self, ctx: KeyedBroadcastReadContext) -> None:
            self.items = ctx.list_state("items")
            self.table = ctx.map_state("table")
            self.total = ctx.reducing_state("total", lambda a, b: a + b)

        def process_element(self, value: Record, ctx: KeyedBroadcastReadContext) -> None:
            self.items.add(value[1])
            self.table.put(value[1], value[0])
            self.total.add(value[1])

        def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastWriteContext) -> None:
            ctx.apply_to_keyed_state(ListStateDescriptor("items"), lambda key, state: seen.append(state.get()))
            ctx.apply_to_keyed_state(MapStateDescriptor("table"), lambda key, state: seen.append(state.entries()))
            total = ReducingStateDescriptor("total", lambda a, b: a + b)
            ctx.apply_to_keyed_state(total, lambda key, state: seen.append(state.get()))
            fresh = AggregatingStateDescriptor("fresh", int, lambda a, b: a + b, str)
            ctx.apply_to_keyed_state(fresh, lambda key, state: seen.append("never"))

    harness = Harness(KeyedBroadcastProcessOperator(AllKinds, ["rules"]), key=first)
    harness.process([("a", 2), ("a", 1)])
    harness.process_2(["look"])

    assert seen == [[2, 1], [(1, "a"), (2, "a")], 3]


def test_the_broadcast_side_has_no_current_key() -> None:
    """Keyed state reached through a handle of the data side would belong to the last key, whichever that was."""

    class Peeks(Thresholds):
        def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastWriteContext) -> Iterable[Any]:
            if value == "apply":
                ctx.apply_to_keyed_state(COUNT, lambda key, count: None)
            return [self.count.get()]

    for element in ("peek", "apply"):
        harness = Harness(KeyedBroadcastProcessOperator(Peeks, ["limits"]), key=first)
        harness.process([("a", 1)])
        with pytest.raises(UserFunctionError, match="keyed state was used without a current key"):
            harness.process_2([element])


def test_what_is_no_descriptor_is_refused() -> None:
    """The error of apply_to_keyed_state says what it accepts."""

    class Wrong(Thresholds):
        def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastWriteContext) -> None:
            ctx.apply_to_keyed_state("count", lambda key, count: None)  # type: ignore[arg-type]

    with pytest.raises(UserFunctionError, match="apply_to_keyed_state takes a state descriptor such as"):
        Harness(KeyedBroadcastProcessOperator(Wrong, ["limits"]), key=first).process_2([1])


def test_functions_must_define_their_methods() -> None:
    """Each of the four methods that is missing is named when it is needed."""
    for operator in (
        BroadcastProcessOperator(BroadcastProcessFunction, ["s"]),
        KeyedBroadcastProcessOperator(KeyedBroadcastProcessFunction, ["s"]),
    ):
        harness = Harness(operator, key=first)
        with pytest.raises(UserFunctionError, match=r"does not define process_element\("):
            harness.process([("a", 1)])
        with pytest.raises(UserFunctionError, match="does not define process_broadcast_element"):
            harness.process_2([1])


STEPS = st.one_of(
    st.tuples(st.just("data"), st.tuples(st.sampled_from("abcd"), st.integers(1, 3))),
    st.tuples(st.just("limit"), st.tuples(st.sampled_from("abcd"), st.integers(1, 9))),
    st.tuples(st.just("counts"), st.none()),
    st.tuples(st.just("reset"), st.none()),
    st.tuples(st.just("restart"), st.integers(1, 4)),
)


@given(st.lists(STEPS, max_size=30))
def test_thresholds_agree_with_two_dicts_whatever_the_parallelism(steps: list[tuple[str, Any]]) -> None:
    """Random data, broadcast elements and rescales: as if one dict held the counts and one the limits."""
    cluster = KeyedCluster(keyed_operator, first)
    counts: dict[str, int] = {}
    limits: dict[str, int] = {}
    for step, argument in steps:
        expected: list[Any] = []
        if step == "restart":
            cluster.restart(argument)
        elif step == "data":
            key, amount = argument
            counts[key] = counts.get(key, 0) + amount
            if counts[key] >= limits.get(key, 1_000_000):
                expected = [(key, counts[key])]
            cluster.process([(argument, 1)])
        elif step == "limit":
            limits[argument[0]] = argument[1]
            cluster.process_2([(argument, 1)])
        else:
            expected = list(counts.items()) if step == "counts" else []
            counts = {} if step == "reset" else counts
            cluster.process_2([(step, 1)])

        assert [value for value, _ in cluster.take_stamped()] == sorted(expected, key=repr)
        for harness in cluster.subtasks:
            assert dict(harness.context.operator.broadcast_state("limits").entries()) == limits
