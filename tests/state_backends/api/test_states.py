"""States of all kinds of backend: Flink's semantics for one key, and batches that equal single access."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from state_backends.api import KeyedStateBackend
from state_backends.base import (
    LONG,
    STRING,
    AggregatingStateDescriptor,
    KeyGroupError,
    KeyTypeError,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateArgumentError,
    StateSchemaError,
    ValueStateDescriptor,
    infer_key_type,
    key_group_for,
    tuple_of,
)
from state_backends.snapshots import SnapshotOptions
from tests.state_backends.differential.backends import Maker
from tests.state_backends.support import COLLECT, LIST, MAP, SUM, VALUE, vectors

Vector = dict[str, Any]


def state_of_type(backend: KeyedStateBackend, state_type: str, default: Any) -> Any:
    return {
        "value": lambda: backend.value_state(ValueStateDescriptor("s", default)),
        "list": lambda: backend.list_state(ListStateDescriptor("s")),
        "map": lambda: backend.map_state(MAP),
        "aggregating_sum": lambda: backend.aggregating_state(
            AggregatingStateDescriptor("s", lambda: [0], _add_in_place, lambda acc: acc[0])
        ),
        "reducing_sum": lambda: backend.reducing_state(SUM),
    }[state_type]()


def _add_in_place(accumulator: list[int], value: int) -> list[int]:
    accumulator[0] += value
    return accumulator


@pytest.mark.parametrize("vector", vectors("keyed_state_ops"))
def test_single_access_is_that_of_flink(make: Maker, vector: Vector) -> None:
    """Each operation of a scenario has the result that Flink's backend tests assert."""
    ops = vector["input"]["ops"]
    first_key = next(op["key"] for op in ops if op["op"] == "key")
    backend = make(infer_key_type(first_key))
    state = state_of_type(backend, vector["input"]["state_type"], vector["input"].get("default"))
    run = {
        "get": lambda op: state.get(),
        "add": lambda op: state.add(op["value"]),
        "addAll": lambda op: state.add_all(op["value"]),
        "update": lambda op: state.update(op["value"]),
        "clear": lambda op: state.clear(),
        "put": lambda op: state.put(op["map_key"], op["value"]),
        "map_get": lambda op: state.get(op["map_key"]),
        "remove": lambda op: state.remove(op["map_key"]),
        "entries": lambda op: dict(state.entries()),
        "is_empty": lambda op: state.is_empty(),
        "num_entries": lambda op: backend.num_entries(),
    }
    for op, expect in zip(ops, vector["expect"]["per_op"], strict=True):
        if op["op"] == "key":
            backend.set_current_key(op["key"])
        elif op["op"] == "snapshot_and_restore":
            backend = make.restarted(backend)
            state = state_of_type(backend, vector["input"]["state_type"], vector["input"].get("default"))
        elif "error" in expect:
            with pytest.raises(StateArgumentError):
                run[op["op"]](op)
        else:
            result = run[op["op"]](op)
            assert "value" not in expect or expect["value"] == result, op


@pytest.mark.parametrize("vector", vectors("keyed_state_merge_namespaces"))
@pytest.mark.parametrize("kind", ["reducing", "list", "aggregating"])
def test_merging_namespaces(make: Maker, vector: Vector, kind: str) -> None:
    """Sources flow into the target and become empty; all empty leaves the target missing."""
    given_input, expected = vector["input"], vector["expect"]["target_value"]
    backend = make(STRING)
    state: Any = {
        "reducing": lambda: backend.reducing_state(SUM),
        "list": lambda: backend.list_state(LIST),
        "aggregating": lambda: backend.aggregating_state(COLLECT),
    }[kind]()
    target, sources = given_input["target_namespace"], given_input["source_namespaces"]
    for key, adds in given_input["per_key_namespace_adds"].items():
        backend.set_current_key(key)
        for namespace, added in adds.items():
            state.set_namespace(int(namespace))
            for value in added:
                state.add(value)
        state.merge_namespaces(target, sources)
        for namespace in sources:
            state.set_namespace(namespace)
            assert state.get() is None
        state.set_namespace(target)
        found = state.get()
        assert expected[key] == (sum(found) if found is not None and kind != "reducing" else found)

    assert backend.num_entries() == sum(value is not None for value in expected.values())


def test_merging_needs_a_merge_function(make: Maker) -> None:
    """An aggregating state without merge says which state lacks it."""
    backend = make()
    backend.set_current_key(1)
    state = backend.aggregating_state(AggregatingStateDescriptor("agg", int, lambda a, v: a + v, lambda a: a))
    with pytest.raises(StateArgumentError, match="'agg' has no merge function"):
        state.merge_namespaces(1, [2])


def test_state_is_scoped_by_key_and_namespace(make: Maker) -> None:
    """The same state holds one value per key and namespace; no namespace is one of its own."""
    backend = make()
    state = backend.value_state(VALUE)
    for key in (1, 2):
        backend.set_current_key(key)
        for namespace in (None, "a", "b"):
            state.set_namespace(namespace)
            state.update((key, namespace))
    backend.set_current_key(1)
    state.set_namespace("a")
    state.clear()

    assert backend.num_entries() == backend.num_entries("value") == 5
    assert backend.keys("value") == sorted([1, 2], key=lambda key: key_group_for(key, 8))
    assert backend.keys("value", "a") == [2]
    assert backend.keys("nothing") == []
    assert state.get_many([1, 2], ["a", "b"]) == [None, (2, "b")]


def test_tuple_keys_do_not_collide_with_namespaces(make: Maker) -> None:
    """A tuple key looks like a pair of key and namespace; both kinds of entries live side by side all the same."""
    backend = make(tuple_of(tuple_of(LONG, LONG), LONG))
    state = backend.value_state(VALUE)
    backend.set_current_key(((1, 2), 3))
    state.update("no namespace")
    state.set_namespace(4)
    state.update("namespace 4")
    state.set_namespace(None)

    assert state.get() == "no namespace"
    assert backend.num_entries() == 2


def test_a_default_is_fresh_at_each_read_and_never_stored(make: Maker) -> None:
    """Changing a default that was read changes no later read."""
    backend = make()
    state = backend.value_state(ValueStateDescriptor("v", []))
    backend.set_current_key(1)
    state.get().append(1)

    assert state.get() == []
    first, second = state.get_many([1, 2])
    assert first is not second
    assert backend.num_entries() == 0


def test_a_default_that_cannot_be_stored_is_refused_at_declaration(make: Maker) -> None:
    """A default that no snapshot could hold is found when the state is declared."""
    with pytest.raises(Exception, match="default of state 'v' cannot be written to state"):
        make().value_state(ValueStateDescriptor("v", {1}))


def test_lists_refuse_none_before_any_change(make: Maker) -> None:
    """A None element leaves the list as it was, in every method."""
    backend = make()
    state = backend.list_state(LIST)
    backend.set_current_key(1)
    state.add(1)
    with pytest.raises(StateArgumentError, match="element that is None"):
        state.add(None)
    with pytest.raises(StateArgumentError, match="element that is None"):
        state.add_many([1, 1], [2, None])
    with pytest.raises(StateArgumentError, match="pass an empty list"):
        state.update(None)  # type: ignore[arg-type]
    state.add_all([])

    assert state.get() == [1]


def test_lists_handed_out_are_copies(make: Maker) -> None:
    """Changing a list that was read changes no state."""
    backend = make()
    state = backend.list_state(LIST)
    backend.set_current_key(1)
    given_list = [1]
    state.update(given_list)
    given_list.append(2)
    got = state.get()
    assert got is not None
    got.append(3)
    (many,) = state.get_many([1])
    assert many is not None
    many.append(4)

    assert state.get() == [1]


def test_maps_iterate_in_an_order_of_their_content(make: Maker) -> None:
    """Two maps with the same entries iterate alike, whatever the order of putting."""
    backend = make()
    state = backend.map_state(MAP)
    entries = [("b", 1), ("a", 2), ("aa", 3), ("", 4)]
    for key, order in ((1, entries), (2, entries[::-1])):
        backend.set_current_key(key)
        for map_key, value in order:
            state.put(map_key, value)
    backend.set_current_key(1)
    first = state.entries()
    backend.set_current_key(2)

    assert state.entries() == first == [("", 4), ("a", 2), ("b", 1), ("aa", 3)]
    assert state.keys() == [key for key, _ in first]
    assert state.values() == [value for _, value in first]
    assert state.contains("aa")
    assert not state.contains("x")


def test_an_emptied_map_is_gone(make: Maker) -> None:
    """Removing the last entry removes the map; removing what is not there changes nothing."""
    backend = make()
    state = backend.map_state(MAP)
    backend.set_current_key(1)
    state.put_all({})
    assert backend.num_entries() == 0
    state.put_all({1: "a", 2: None})
    state.remove(3)
    assert state.get(2) is None
    assert state.contains(2)
    state.remove(1)
    state.remove(2)

    assert state.is_empty()
    assert backend.num_entries() == 0


def test_adding_none_clears_folding_states(make: Maker) -> None:
    """add(None) clears a reducing or aggregating state, as Flink's heap backend does."""
    backend = make()
    backend.set_current_key(1)
    for state in (backend.reducing_state(SUM), backend.aggregating_state(COLLECT)):
        state.add(5)
        assert state.get() is not None
        state.add(None)
        assert state.get() is None

    assert backend.num_entries() == 0


def test_an_add_function_must_return_the_accumulator(make: Maker) -> None:
    """Forgetting to return the accumulator is an error in both ways of access, not a lost window."""
    backend = make()
    backend.set_current_key(1)
    state = backend.aggregating_state(AggregatingStateDescriptor("agg", list, list.append, tuple))
    with pytest.raises(StateArgumentError, match="'agg' returned None"):
        state.add(1)
    with pytest.raises(StateArgumentError, match="'agg' returned None"):
        state.add_many([1], None, [1])


def test_a_state_needs_a_key_of_the_right_type(make: Maker) -> None:
    """State without a current key, and a key of another type, are refused with the reason."""
    backend = make()
    state = backend.value_state(VALUE)
    with pytest.raises(StateArgumentError, match="without a current key"):
        state.get()
    with pytest.raises(KeyTypeError, match="bool"):
        backend.set_current_key(True)


def test_the_key_type_of_the_first_key_is_adopted(make: Maker) -> None:
    """A backend without a declared key type takes that of the first key, and then insists on it."""
    backend = make(None)
    assert backend.key_type is None
    backend.set_current_key("a")
    with pytest.raises(KeyTypeError, match="declared STRING"):
        backend.set_current_key(1)
    by_batch = make(None)
    by_batch.reducing_state(SUM).add_many([1], [1], [])

    assert backend.key_type == STRING
    assert by_batch.key_type == LONG


def test_a_name_keeps_its_kind(make: Maker) -> None:
    """The same name cannot be two kinds of state, and names of timers are kept apart."""
    backend = make()
    backend.value_state(ValueStateDescriptor("s"))
    with pytest.raises(StateSchemaError, match="'s' was declared as value state and cannot be list state"):
        backend.list_state(ListStateDescriptor("s"))
    with pytest.raises(StateArgumentError, match="kept for timers"):
        ValueStateDescriptor("_timer_state/event_x")
    with pytest.raises(StateArgumentError, match="needs a name"):
        ListStateDescriptor("")


def test_a_key_group_range_must_fit(make: Maker) -> None:
    """A range beyond the max parallelism is refused."""
    with pytest.raises(KeyGroupError, match="exceed the max parallelism 8"):
        make(max_parallelism=8, last=8)


keys = st.lists(st.integers(0, 5), max_size=30)
small_values = st.one_of(st.none(), st.integers(-3, 3))


def paired(data: st.DataObject, elements: st.SearchStrategy[Any]) -> tuple[list[int], list[Any], list[Any] | None]:
    """Keys, values and maybe namespaces of one batch."""
    drawn = data.draw(keys)
    exactly = {"min_size": len(drawn), "max_size": len(drawn)}
    drawn_values = data.draw(st.lists(elements, **exactly))
    namespaces = data.draw(st.one_of(st.none(), st.lists(st.sampled_from("abc"), **exactly)))
    return drawn, drawn_values, namespaces


@given(st.data(), st.sampled_from(["value", "list", "reducing", "aggregating"]), st.booleans())
def test_batches_equal_single_access(make: Maker, data: st.DataObject, kind: str, snapshot_open: bool) -> None:
    """A batch leaves the same state and gives the same answers as its records one by one, also while a
    snapshot is open."""
    backends = make(), make()
    batched, single = (_state(backend, kind) for backend in backends)
    held = []
    for _ in range(2):
        drawn, drawn_values, namespaces = paired(data, st.integers(0, 3) if kind == "list" else small_values)
        if snapshot_open:
            held += [backend.snapshot_strategy(SnapshotOptions()).sync_prepare_resources(1) for backend in backends]
        out_batched, out_single = [], []
        _add_batch(batched, kind, drawn, drawn_values, namespaces, out_batched)
        for i, (key, value) in enumerate(zip(drawn, drawn_values, strict=True)):
            backends[1].set_current_key(key)
            single.set_namespace(namespaces[i] if namespaces else None)
            (single.update if kind == "value" else single.add)(value)
            out_single.append(single.get())
        assert out_batched in ([], out_single)
        assert batched.get_many(drawn, namespaces) == single.get_many(drawn, namespaces)
        cleared = drawn[::3]
        cleared_namespaces = namespaces[::3] if namespaces else None
        batched.clear_many(cleared, cleared_namespaces)
        for i, key in enumerate(cleared):
            backends[1].set_current_key(key)
            single.set_namespace(cleared_namespaces[i] if cleared_namespaces else None)
            single.clear()

    assert backends[0].fingerprint() == backends[1].fingerprint()


def _state(backend: KeyedStateBackend, kind: str) -> Any:
    return {
        "value": lambda: backend.value_state(VALUE),
        "list": lambda: backend.list_state(LIST),
        "reducing": lambda: backend.reducing_state(SUM),
        "aggregating": lambda: backend.aggregating_state(COLLECT),
    }[kind]()


def _add_batch(
    state: Any, kind: str, drawn: list[int], drawn_values: list[Any], namespaces: Any, out: list[Any]
) -> None:
    if kind == "value":
        state.update_many(drawn, drawn_values, namespaces)
    elif kind == "list":
        state.add_many(drawn, drawn_values, namespaces)
    elif kind == "reducing":
        state.add_many(drawn, drawn_values, out, namespaces)
    else:
        state.add_many(drawn, namespaces, drawn_values, out)


def test_batches_of_unequal_length_are_a_bug(make: Maker) -> None:
    """A batch whose columns differ in length would shift values to other keys."""
    with pytest.raises(AssertionError, match="2 keys came with 1 values"):
        make().reducing_state(SUM).add_many([1, 2], [1], [])


def _refuse_three(total: int, value: int) -> int:
    if value == 3:
        raise KeyError("three")
    return total + value


@pytest.mark.parametrize("namespaces", [None, ["n"] * 4])
def test_the_failing_record_of_a_batch_is_known(make: Maker, namespaces: list[str] | None) -> None:
    """The program's own exception passes through, even a KeyError; out and failed_index tell the record."""
    backend = make()
    reducing = backend.reducing_state(ReducingStateDescriptor("r", _refuse_three))
    out: list[int] = []
    with pytest.raises(KeyError, match="three"):
        reducing.add_many([1, 1, 1, 1], [1, 2, 3, 4], out, namespaces)
    aggregating = backend.aggregating_state(AggregatingStateDescriptor("a", int, _refuse_three, str))
    with pytest.raises(KeyError, match="three"):
        aggregating.add_many([1, 2, 3, 4], namespaces, [1, 2, 3, 4])

    assert out == [1, 3]
    assert reducing.failed_index == aggregating.failed_index == 2


def test_a_foreign_key_in_a_batch_is_the_failing_record(make: Maker) -> None:
    """A key of a key group that the backend does not own fails at its own index."""
    backend = make(max_parallelism=8, first=0, last=3)
    state = backend.reducing_state(SUM)
    own = [key for key in range(50) if key_group_for(key, 8) < 4]
    foreign = next(key for key in range(50) if key_group_for(key, 8) >= 4)
    out: list[int] = []
    with pytest.raises(KeyGroupError):
        state.add_many([own[0], own[1], foreign], [1, 2, 3], out)

    assert out == [1, 2]
    assert state.failed_index == 2
