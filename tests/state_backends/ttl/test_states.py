"""State with time-to-live, of every kind, on several backends, against plain models written from the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from state_backends.base import (
    MAX_TIME_MS,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateArgumentError,
    StateTtlConfig,
    StateVisibility,
    UpdateType,
    ValueStateDescriptor,
)
from tests.state_backends.ttl.support import ALL_SETTINGS, BACKENDS, Clock, backend

Place = tuple[int, Any]
TTL_MS = 100

keys = st.integers(0, 3)
namespaces = st.sampled_from([None, "a", "b"])
numbers = st.integers(1, 9)
passing = st.sampled_from([0, 1, 40, 99, 100, 101, 250])


class Model:
    """How every kind treats one pair of last access and content."""

    def __init__(self, config: StateTtlConfig, clock: Clock) -> None:
        self.config = config
        self.clock = clock

    def read(self, pair: tuple[int, Any]) -> tuple[Any, tuple[int, Any] | None]:
        """The value that a reader sees (``None``: nothing), and the pair that stays."""
        stamp, content = pair
        now = self.clock.now_ms
        if stamp + TTL_MS <= now:
            late = self.config.visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
            return (content if late else None), None
        refreshed = self.config.update_type is UpdateType.ON_READ_AND_WRITE
        return content, (now if refreshed else stamp, content)

    def is_dead(self, pair: tuple[int, Any]) -> bool:
        """Whether a fold leaves it out."""
        late = self.config.visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
        return pair[0] + TTL_MS <= self.clock.now_ms and not late


class Cells:
    """Single pairs by place: value, reducing and aggregating state."""

    def __init__(self, model: Model, kind: Kind) -> None:
        self.model = model
        self.kind = kind
        self.pairs: dict[Place, tuple[int, Any]] = {}

    def get(self, place: Place) -> Any:
        if place not in self.pairs:
            return None
        seen, left = self.model.read(self.pairs[place])
        if left is None:
            del self.pairs[place]
        else:
            self.pairs[place] = left
        return seen

    def write(self, place: Place, value: Any) -> Any:
        old = self.pairs.get(place)
        if value is None:
            self.pairs.pop(place, None)
            return None
        folds = self.kind.fold is not None and old is not None and not self.model.is_dead(old)
        content = self.kind.fold(old[1], value) if folds else self.kind.first(value)
        self.pairs[place] = (self.model.clock.now_ms, content)
        return content

    def clear(self, place: Place) -> None:
        self.pairs.pop(place, None)

    def merge(self, key: int, target: Any, sources: list[Any]) -> None:
        found = [self.pairs.pop((key, one), None) for one in (target, *sources)]
        pairs = [pair for pair in found if pair is not None and not self.model.is_dead(pair)]
        if len(pairs) == 1:
            self.pairs[key, target] = pairs[0]
        elif pairs:
            merged = pairs[0][1]
            for _, content in pairs[1:]:
                merged = self.kind.merge(merged, content)
            self.pairs[key, target] = (self.model.clock.now_ms, merged)


singles = st.one_of(
    st.tuples(st.just("pass"), passing),
    st.tuples(st.just("write"), keys, namespaces, numbers | st.none()),
    st.tuples(st.just("get"), keys, namespaces),
    st.tuples(st.just("clear"), keys, namespaces),
    st.tuples(st.just("get many"), st.lists(st.tuples(keys, namespaces.filter(bool)), max_size=5)),
    st.tuples(
        st.just("write many"), st.lists(st.tuples(keys, namespaces.filter(bool), numbers | st.none()), max_size=5)
    ),
    st.tuples(st.just("get plain"), st.lists(keys, max_size=5)),
    st.tuples(st.just("merge"), keys),
)


def _list_add(accumulator: list[int], value: int) -> list[int]:
    accumulator.append(value)
    return accumulator


def _shift(left: int, right: int) -> int:
    return left * 10 + right


class Kind(NamedTuple):
    """A kind of state: its descriptor, and what becomes of the first value, of another one, and of two contents."""

    descriptor: Callable[[StateTtlConfig], Any]
    first: Callable[[Any], Any]
    fold: Any = None
    merge: Any = None


KINDS = {
    "value": Kind(lambda ttl: ValueStateDescriptor("s", ttl=ttl), lambda value: value),
    "reducing": Kind(
        lambda ttl: ReducingStateDescriptor("s", _shift, ttl=ttl), lambda value: value, fold=_shift, merge=_shift
    ),
    "aggregating": Kind(
        lambda ttl: AggregatingStateDescriptor("s", list, _list_add, tuple, lambda a, b: a + b, ttl=ttl),
        lambda value: (value,),
        fold=lambda content, value: (*content, value),
        merge=lambda left, right: left + right,
    ),
}


def _write_many(kind: str, state: Any, entries: list[tuple[int, Any, Any]]) -> list[Any] | None:
    batch_keys, batch_namespaces, values = ([entry[index] for entry in entries] for index in range(3))
    out: list[Any] = []
    if kind == "value":
        state.update_many(batch_keys, values, batch_namespaces)
        return None
    if kind == "reducing":
        state.add_many(batch_keys, values, out, batch_namespaces)
    else:
        state.add_many(batch_keys, batch_namespaces, values, out)
    return out


def _run_cells(name: str, kind: str, config: StateTtlConfig, steps: list[Any]) -> None:
    clock = Clock(1_000)
    keyed = backend(name, clock)
    state: Any = getattr(keyed, f"{kind}_state")(KINDS[kind].descriptor(config))
    cells = Cells(Model(config, clock), KINDS[kind])
    for op, *arguments in steps:
        match op:
            case "pass":
                clock.now_ms += arguments[0]
            case "write" | "get" | "clear":
                place = (arguments[0], arguments[1])
                keyed.set_current_key(place[0])
                state.set_namespace(place[1])
                if op == "get":
                    assert state.get() == cells.get(place)
                elif op == "clear":
                    state.clear()
                    cells.clear(place)
                else:
                    (state.update if kind == "value" else state.add)(arguments[2])
                    cells.write(place, arguments[2])
            case "get many":
                found = state.get_many([key for key, _ in arguments[0]], [one for _, one in arguments[0]])
                assert found == [cells.get(place) for place in arguments[0]]
            case "get plain":
                assert state.get_many(arguments[0]) == [cells.get((key, None)) for key in arguments[0]]
            case "write many":
                after = _write_many(kind, state, arguments[0])
                expected = [cells.write((key, namespace), value) for key, namespace, value in arguments[0]]
                assert after is None or after == expected
            case "merge" if kind != "value":
                keyed.set_current_key(arguments[0])
                state.set_namespace("b")
                state.merge_namespaces("a", ["b", "c"])
                cells.merge(arguments[0], "a", ["b", "c"])
                # The namespace that was set is still the one that counts.
                assert state.get() is None
    assert keyed.num_entries() == len(cells.pairs)
    keyed.dispose()


@pytest.mark.parametrize("config", ALL_SETTINGS, ids=lambda one: f"{one.update_type.value}-{one.visibility.value}")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BACKENDS)
def test_single_values_live_as_long_as_the_rules_say(name: str, kind: str, config: StateTtlConfig) -> None:
    """Value, reducing and aggregating state give what a plain model gives, record by record and in batches."""

    @settings(max_examples=30 if name == "heap" else 8, deadline=None)
    @given(st.lists(singles, max_size=25))
    def check(steps: list[Any]) -> None:
        _run_cells(name, kind, config, steps)

    check()


list_steps = st.one_of(
    st.tuples(st.just("pass"), passing),
    st.tuples(st.just("add"), keys, numbers),
    st.tuples(st.just("add all"), keys, st.lists(numbers, max_size=3)),
    st.tuples(st.just("update"), keys, st.lists(numbers, max_size=3)),
    st.tuples(st.just("get"), keys),
    st.tuples(st.just("get many"), st.lists(keys, max_size=5)),
    st.tuples(st.just("add many"), st.lists(st.tuples(keys, numbers), max_size=5)),
    st.tuples(st.just("merge"), keys),
)


class Lists:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.lists: dict[Place, list[tuple[int, Any]]] = {}

    def add(self, place: Place, elements: list[Any]) -> None:
        if elements:
            self.lists.setdefault(place, []).extend((self.model.clock.now_ms, one) for one in elements)

    def get(self, place: Place) -> Any:
        read = [self.model.read(pair) for pair in self.lists.pop(place, [])]
        left = [pair for _, pair in read if pair is not None]
        if left:
            self.lists[place] = left
        return [seen for seen, _ in read if seen is not None] or None

    def merge(self, key: int, target: Any, sources: list[Any]) -> None:
        merged = [pair for one in (target, *sources) for pair in self.lists.pop((key, one), [])]
        if merged:
            self.lists[key, target] = merged


def _run_lists(name: str, config: StateTtlConfig, steps: list[Any]) -> None:
    clock = Clock(1_000)
    keyed = backend(name, clock)
    state: Any = keyed.list_state(ListStateDescriptor("s", ttl=config))
    lists = Lists(Model(config, clock))
    for number, (op, *arguments) in enumerate(steps):
        if op == "pass":
            clock.now_ms += arguments[0]
            continue
        namespace = "a" if number % 2 else None
        if op not in ("get many", "add many"):
            keyed.set_current_key(arguments[0])
            state.set_namespace(namespace)
        place = (arguments[0], namespace) if not isinstance(arguments[0], list) else (0, None)
        match op:
            case "add":
                state.add(arguments[1])
                lists.add(place, [arguments[1]])
            case "add all":
                state.add_all(arguments[1])
                lists.add(place, arguments[1])
            case "update":
                state.update(arguments[1])
                lists.lists.pop(place, None)
                lists.add(place, arguments[1])
            case "get":
                assert state.get() == lists.get(place)
            case "get many":
                spaces = None if namespace is None else [namespace] * len(arguments[0])
                found = state.get_many(arguments[0], spaces)
                assert found == [lists.get((key, namespace)) for key in arguments[0]]
            case "add many":
                spaces = None if namespace is None else [namespace] * len(arguments[0])
                state.add_many([key for key, _ in arguments[0]], [one for _, one in arguments[0]], spaces)
                for key, element in arguments[0]:
                    lists.add((key, namespace), [element])
            case "merge":
                state.merge_namespaces("b", ["a", "c"])
                lists.merge(arguments[0], "b", ["a", "c"])
    assert keyed.num_entries() == len(lists.lists)
    keyed.dispose()


@pytest.mark.parametrize("config", ALL_SETTINGS, ids=lambda one: f"{one.update_type.value}-{one.visibility.value}")
@pytest.mark.parametrize("name", BACKENDS)
def test_list_elements_expire_one_by_one(name: str, config: StateTtlConfig) -> None:
    """Lists give what a plain model gives: each element has its own time, and keeps it when lists merge."""

    @settings(max_examples=30 if name == "heap" else 8, deadline=None)
    @given(st.lists(list_steps, max_size=25))
    def check(steps: list[Any]) -> None:
        _run_lists(name, config, steps)

    check()


map_keys = st.sampled_from(["x", "y", "z"])
map_steps = st.one_of(
    st.tuples(st.just("pass"), passing),
    st.tuples(st.just("put"), map_keys, numbers | st.none()),
    st.tuples(st.just("put all"), st.dictionaries(map_keys, numbers, max_size=3)),
    st.tuples(st.just("get"), map_keys),
    st.tuples(st.just("contains"), map_keys),
    st.tuples(st.just("remove"), map_keys),
    st.tuples(st.just("entries")),
    st.tuples(st.just("keys")),
    st.tuples(st.just("values")),
    st.tuples(st.just("is empty")),
    st.tuples(st.just("clear")),
)
_NOTHING = object()


def _run_map(name: str, config: StateTtlConfig, steps: list[Any]) -> None:
    clock = Clock(1_000)
    keyed = backend(name, clock)
    state: Any = keyed.map_state(MapStateDescriptor("s", ttl=config))
    keyed.set_current_key(1)
    model = Model(config, clock)
    pairs: dict[str, tuple[int, Any]] = {}

    def visit(map_key: str) -> Any:
        if map_key not in pairs:
            return _NOTHING
        stamp, value = pairs.pop(map_key)
        # In a box, because an entry may hold None.
        seen, kept = model.read((stamp, [value]))
        if kept is not None:
            pairs[map_key] = (kept[0], value)
        return _NOTHING if seen is None else seen[0]

    def walk() -> list[tuple[str, Any]]:
        seen = [(map_key, visit(map_key)) for map_key in sorted(pairs)]
        return [(map_key, value) for map_key, value in seen if value is not _NOTHING]

    for op, *arguments in steps:
        match op:
            case "pass":
                clock.now_ms += arguments[0]
            case "put":
                state.put(*arguments)
                pairs[arguments[0]] = (clock.now_ms, arguments[1])
            case "put all":
                state.put_all(arguments[0])
                pairs |= {map_key: (clock.now_ms, value) for map_key, value in arguments[0].items()}
            case "get":
                seen = visit(arguments[0])
                assert state.get(arguments[0]) == (None if seen is _NOTHING else seen)
            case "contains":
                assert state.contains(arguments[0]) is (visit(arguments[0]) is not _NOTHING)
            case "remove":
                state.remove(arguments[0])
                pairs.pop(arguments[0], None)
            case "entries":
                assert state.entries() == walk()
            case "keys":
                assert state.keys() == [map_key for map_key, _ in walk()]
            case "values":
                assert state.values() == [value for _, value in walk()]
            case "is empty":
                assert state.is_empty() is all(model.is_dead(pair) for pair in pairs.values())
            case "clear":
                state.clear()
                pairs.clear()
    assert keyed.num_entries() == bool(pairs)
    keyed.dispose()


@pytest.mark.parametrize("config", ALL_SETTINGS, ids=lambda one: f"{one.update_type.value}-{one.visibility.value}")
@pytest.mark.parametrize("name", BACKENDS)
def test_map_entries_expire_one_by_one(name: str, config: StateTtlConfig) -> None:
    """Maps give what a plain model gives: each entry has its own time; an entry may hold nothing."""

    @settings(max_examples=30 if name == "heap" else 8, deadline=None)
    @given(st.lists(map_steps, max_size=25))
    def check(steps: list[Any]) -> None:
        _run_map(name, config, steps)

    check()


# --- what a model does not show ---------------------------------------------------------------------------------------

ONE_DAY = StateTtlConfig(86_400_000)


@pytest.mark.parametrize("name", BACKENDS)
def test_what_has_expired_reads_as_a_fresh_default(name: str) -> None:
    """The default is neither stored nor shared: changing what was read changes nothing."""
    clock = Clock()
    keyed = backend(name, clock)
    state = keyed.value_state(ValueStateDescriptor("s", [1], ttl=StateTtlConfig(10)))
    keyed.set_current_key(1)

    state.get().append(2)
    assert state.get() == [1]
    assert state.get_many([1, 2]) == [[1], [1]]
    state.update([5])
    clock.now_ms = 10
    assert state.get_many([1, 1]) == [[1], [1]]


@pytest.mark.parametrize("name", BACKENDS)
def test_none_is_refused_as_without_time_to_live(name: str) -> None:
    """A list with time-to-live refuses what one without refuses, before any change."""
    keyed = backend(name, Clock())
    state: Any = keyed.list_state(ListStateDescriptor("s", ttl=ONE_DAY))
    keyed.set_current_key(1)

    for refused in (
        lambda: state.add(None),
        lambda: state.add_all([1, None]),
        lambda: state.add_all(None),
        lambda: state.update([1, None]),
        lambda: state.add_many([1, 1], [1, None]),
    ):
        with pytest.raises(StateArgumentError, match="None"):
            refused()
    assert state.get() is None


def _refuse_three(total: int, value: int) -> int:
    if value == 3:
        raise ZeroDivisionError
    return total + value


@pytest.mark.parametrize("name", BACKENDS)
def test_a_failing_function_says_which_record_it_was(name: str) -> None:
    """The records before it are done and have their results, as without time-to-live."""
    keyed = backend(name, Clock())
    reducing = keyed.reducing_state(ReducingStateDescriptor("r", _refuse_three, ttl=ONE_DAY))
    aggregating = keyed.aggregating_state(AggregatingStateDescriptor("a", int, _refuse_three, str, ttl=ONE_DAY))
    out: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        reducing.add_many([1, 1, 1, 1], [1, 2, 3, 4], out)
    assert (out, reducing.failed_index) == ([1, 3], 2)

    out = []
    with pytest.raises(ZeroDivisionError):
        aggregating.add_many([1, 1, 1], None, [1, 3, 4], out)
    assert (out, aggregating.failed_index) == (["1"], 1)
    aggregating.failed_index = None
    assert aggregating.failed_index is None


@pytest.mark.parametrize("name", BACKENDS)
def test_an_aggregate_without_merge_or_accumulator_is_reported(name: str) -> None:
    """The errors name the state of the program."""
    keyed = backend(name, Clock())
    state = keyed.aggregating_state(
        AggregatingStateDescriptor("mine", int, lambda total, value: None, str, ttl=ONE_DAY)
    )
    keyed.set_current_key(1)

    with pytest.raises(StateArgumentError, match=r"'mine' .*returned None"):
        state.add(1)
    with pytest.raises(StateArgumentError, match=r"'mine' has no merge function"):
        state.merge_namespaces("a", ["b"])


LATE = StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP


@pytest.mark.parametrize("name", BACKENDS)
def test_what_has_expired_is_returned_once_also_inside_a_batch(name: str) -> None:
    """Two records of one key in one batch: only the first sees what has expired, in lists and in values."""
    clock = Clock()
    keyed = backend(name, clock)
    config = StateTtlConfig(100, visibility=LATE)
    values = keyed.value_state(ValueStateDescriptor("v", ttl=config))
    lists = keyed.list_state(ListStateDescriptor("l", ttl=config))
    values.update_many([1, 2], ["a", "b"])
    lists.add_many([1, 1, 2], ["a", "b", "c"])
    clock.now_ms = 50
    lists.add_many([1], ["d"])
    clock.now_ms = 100

    assert values.get_many([1, 2, 1, 2]) == ["a", "b", None, None]
    assert lists.get_many([1, 2, 1, 2]) == [["a", "b", "d"], ["c"], ["d"], None]
    assert lists.get_many([1, 2]) == [["d"], None]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("kind", ["reducing", "aggregating"])
def test_merging_two_contents_is_a_write_and_moving_one_is_not(name: str, kind: str) -> None:
    """Merged content lives from the merge on; content that only moved to another namespace keeps its end."""
    clock = Clock()
    keyed = backend(name, clock)
    state: Any = getattr(keyed, f"{kind}_state")(KINDS[kind].descriptor(StateTtlConfig(100)))
    for key, sources in ((1, ["a", "b"]), (2, ["a"])):
        clock.now_ms = 0
        keyed.set_current_key(key)
        for source in sources:
            state.set_namespace(source)
            state.add(7)
        clock.now_ms = 50
        state.set_namespace("target")
        state.merge_namespaces("target", ["a", "b"])

    clock.now_ms = 100
    keyed.set_current_key(1)
    assert state.get() in (77, (7, 7))
    keyed.set_current_key(2)
    assert state.get() is None


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("kind", ["reducing", "aggregating"])
def test_what_has_expired_is_folded_into_only_if_it_may_be_returned(name: str, kind: str) -> None:
    """Adding to an expired value starts anew, or continues it while readers may still see it (TtlReduceFunction)."""
    for config, expected in ((StateTtlConfig(100), (8, (8,))), (StateTtlConfig(100, visibility=LATE), (78, (7, 8)))):
        clock = Clock()
        keyed = backend(name, clock)
        state: Any = getattr(keyed, f"{kind}_state")(KINDS[kind].descriptor(config))
        keyed.set_current_key(1)
        state.add(7)
        clock.now_ms = 100
        state.add(8)
        assert state.get() in expected


@pytest.mark.parametrize("kind", ["reducing", "aggregating"])
def test_at_the_end_of_time_everything_has_expired_for_folds_too(kind: str) -> None:
    """The sum of last access and time-to-live is capped, as for reads."""
    clock = Clock(MAX_TIME_MS - 1)
    keyed = backend("heap", clock)
    state: Any = getattr(keyed, f"{kind}_state")(KINDS[kind].descriptor(StateTtlConfig(100)))
    keyed.set_current_key(1)
    state.add(7)
    state.set_namespace("other")
    state.add(7)
    state.add(8)
    assert state.get() in (78, (7, 8))
    clock.now_ms = MAX_TIME_MS
    state.set_namespace(None)
    state.add(8)
    state.add(9)

    clock.now_ms = MAX_TIME_MS - 1
    assert state.get() in (9, (9,))
