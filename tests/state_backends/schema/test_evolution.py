"""Records whose fields have changed between two programs: old state follows, or is refused before anything is read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from state_backends.api import KeyedStateBackend
from state_backends.base import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateArgumentError,
    StateMigrationError,
    StateSchemaError,
    StateTtlConfig,
    ValueStateDescriptor,
)
from state_backends.codec import StateCodec, TypeRegistry, register_record_type
from state_backends.snapshots import SnapshotType, merge_written
from tests.state_backends.schema.support import (
    CHECKPOINT,
    GROUPS,
    PATHS,
    SAVEPOINT,
    backend,
    program,
    snapshot_bytes,
    taken,
)

CODE = 40
paths = pytest.mark.parametrize(("writer", "kind", "reader"), PATHS)


def registry_of(cls: type, **more: Any) -> TypeRegistry:
    """A program that knows one record type."""
    registry = TypeRegistry()
    register_record_type(CODE, cls, registry=registry, **more)
    return registry


@dataclass
class Visit:
    """As the old program has it."""

    page: str
    seconds: int
    referrer: str


@dataclass
class Visit2:
    """Renamed, one field dropped, one renamed, one widened, two added."""

    url: str
    seconds: float
    tags: list[str] = dataclasses.field(default_factory=list)
    bot: bool = False


OLD, NEW = registry_of(Visit), registry_of(Visit2, renames={"page": "url"})


def latest(left: Any, right: Any) -> Any:
    return right


def collect(accumulator: list[Any], value: Any) -> list[Any]:
    return [*accumulator, value]


def states_of(keyed: KeyedStateBackend) -> dict[str, Any]:
    """One state of each kind, one of them with time-to-live."""
    return {
        "value": keyed.value_state(ValueStateDescriptor("value")),
        "list": keyed.list_state(ListStateDescriptor("list")),
        "map": keyed.map_state(MapStateDescriptor("map")),
        "reducing": keyed.reducing_state(ReducingStateDescriptor("reducing", latest)),
        "aggregating": keyed.aggregating_state(AggregatingStateDescriptor("aggregating", list, collect, tuple)),
        "expiring": keyed.value_state(ValueStateDescriptor("expiring", ttl=StateTtlConfig(10))),
        "plain": keyed.value_state(ValueStateDescriptor("plain")),
    }


def fill(keyed: KeyedStateBackend, record: Any) -> None:
    """A record, or something around it, into each state but the last, under several keys and namespaces."""
    states = states_of(keyed)
    for key in range(6):
        keyed.set_current_key(key)
        for namespace in (None, "n"):
            for state in states.values():
                state.set_namespace(namespace)
            states["value"].update((key, {"inside": [record]}))
            states["list"].add_all([record, key, record])
            states["map"].put_all({"a": record, "b": key})
            states["reducing"].add(record)
            states["aggregating"].add(record)
            states["expiring"].update(record)
            states["plain"].update({"seconds": 7})
    keyed.timer_service("t").event_time.add(1, None, 5)


@paths
def test_old_state_is_that_of_the_new_program(writer: str, kind: SnapshotType, reader: str) -> None:
    """After a restore every value of every kind is as if the new program had written it; so are its next bytes."""
    old = program(writer, kind, OLD)
    fill(old, Visit("p", 5, "r"))
    handle, files = taken(old, kind)
    keyed, expected = program(reader, kind, NEW), program(reader, kind, NEW)
    keyed.restore([handle], files)
    fill(expected, Visit2("p", 5.0))

    assert keyed.fingerprint() == expected.fingerprint()
    states_of(keyed)
    assert snapshot_bytes(keyed) == snapshot_bytes(expected)
    keyed.set_current_key(1)
    value = keyed.value_state(ValueStateDescriptor("value")).get()
    assert value == (1, {"inside": [Visit2("p", 5.0, [], False)]})
    assert type(value[1]["inside"][0].seconds) is float


@paths
def test_unchanged_records_are_left_alone(writer: str, kind: SnapshotType, reader: str) -> None:
    """A field may hold what its annotation does not say: without a change nothing is converted."""

    @dataclass
    class Loose:
        amount: float

    registry = registry_of(Loose)
    old = program(writer, kind, registry)
    fill(old, Loose(1))
    handle, files = taken(old, kind)
    keyed = program(reader, kind, registry)
    keyed.restore([handle], files)

    assert keyed.fingerprint() == old.fingerprint()
    keyed.set_current_key(1)
    (record,) = keyed.value_state(ValueStateDescriptor("value")).get()[1]["inside"]
    assert type(record.amount) is int


@paths
def test_another_version_number_is_written_anew(writer: str, kind: SnapshotType, reader: str) -> None:
    """Raising the version and nothing else gives the bytes of the new version."""
    old = program(writer, kind, OLD)
    fill(old, Visit("p", 5, "r"))
    handle, files = taken(old, kind)
    registry = registry_of(Visit, version=3)
    keyed, expected = program(reader, kind, registry), program(reader, kind, registry)
    keyed.restore([handle], files)
    fill(expected, Visit("p", 5, "r"))
    states_of(keyed)

    assert snapshot_bytes(keyed) == snapshot_bytes(expected)


@paths
def test_a_function_of_the_program_may_do_what_no_rule_does(writer: str, kind: SnapshotType, reader: str) -> None:
    """With a raised version and upgrade=, any change is compatible, and the function gets the old fields."""

    @dataclass
    class Minutes:
        page: str
        minutes: str

    def upgrade(fields: dict[str, Any], version: int) -> dict[str, Any]:
        assert version == 1
        return {"page": fields["page"], "minutes": f"{fields['seconds'] / 60}"}

    old = program(writer, kind, OLD)
    fill(old, Visit("p", 90, "r"))
    handle, files = taken(old, kind)
    registry = registry_of(Minutes, version=2, upgrade=upgrade)
    keyed, expected = program(reader, kind, registry), program(reader, kind, registry)
    keyed.restore([handle], files)
    fill(expected, Minutes("p", "1.5"))

    assert keyed.fingerprint() == expected.fingerprint()


# --- refused ----------------------------------------------------------------------------------------------------------


@dataclass
class TextSeconds:
    """A changed type."""

    page: str
    seconds: str
    referrer: str


@dataclass
class NoDefault:
    page: str
    seconds: int
    referrer: str
    country: str


@dataclass
class Renamed:
    """A renamed field whose type has changed."""

    page: str
    duration: bytes
    referrer: str


REFUSED = [
    (registry_of(TextSeconds), ["field 'seconds' was int and is str", "upgrade="]),
    (registry_of(NoDefault), ["field 'country' (str) is new and has no default", "renames="]),
    (
        registry_of(Renamed, renames={"seconds": "duration"}),
        ["field 'duration' (formerly 'seconds') was int and is bytes"],
    ),
    (registry_of(Renamed), ["field 'duration' (bytes) is new and has no default"]),
]


@paths
@pytest.mark.parametrize(("registry", "parts"), REFUSED)
def test_an_incompatible_change_is_refused_before_anything_is_read(
    writer: str, kind: SnapshotType, reader: str, registry: TypeRegistry, parts: list[str]
) -> None:
    """The error names the states, the class, its code, the field, both types, and what to do. Nothing is restored."""
    old = program(writer, kind, OLD)
    fill(old, Visit("p", 5, "r"))
    handle, files = taken(old, kind)
    keyed = program(reader, kind, registry)

    with pytest.raises(StateMigrationError) as caught:
        keyed.restore([handle], files)

    message = str(caught.value)
    for part in (*parts, "'value'", "'expiring'", "type code 40", "nothing was restored"):
        assert part in message
    if kind is CHECKPOINT or reader == "heap":
        assert keyed.num_entries() == 0
    keyed.dispose()


@paths
def test_a_newer_program_is_not_guessed_at(writer: str, kind: SnapshotType, reader: str) -> None:
    """A snapshot with a higher version of a record is refused, whether a value of it is there or not."""
    old = program(writer, kind, registry_of(Visit, version=2))
    old.set_current_key(1)
    old.value_state(ValueStateDescriptor("value")).update("no record")
    handle, files = taken(old, kind)

    with pytest.raises(StateSchemaError, match=r"version 2 of .*Visit .*versions up to 1"):
        program(reader, kind, OLD).restore([handle], files)


@paths
def test_a_record_that_the_program_does_not_know_is_refused_when_it_is_met(
    writer: str, kind: SnapshotType, reader: str
) -> None:
    """Without values of it the snapshot is fine."""
    old = program(writer, kind, OLD)
    old.set_current_key(1)
    old.value_state(ValueStateDescriptor("value")).update("no record")
    handle, files = taken(old, kind)
    keyed = program(reader, kind, TypeRegistry())
    keyed.restore([handle], files)
    keyed.set_current_key(1)
    assert keyed.value_state(ValueStateDescriptor("value")).get() == "no record"


class Place(NamedTuple):
    """A record that can be a key inside state."""

    x: int
    y: int


class Place3(NamedTuple):
    """The same with another dimension."""

    x: int
    y: int
    z: int = 0


@paths
@pytest.mark.parametrize("where", ["map key", "namespace", "namespace in a tuple"])
def test_keys_inside_state_never_change(writer: str, kind: SnapshotType, reader: str, where: str) -> None:
    """A changed record that is a map key or a namespace is refused: two of them might become one."""
    old = program(writer, kind, registry_of(Place))
    old.set_current_key(1)
    if where == "map key":
        old.map_state(MapStateDescriptor("m")).put(Place(1, 2), "here")
    else:
        state = old.value_state(ValueStateDescriptor("m"))
        state.set_namespace(Place(1, 2) if where == "namespace" else ("tuple", Place(1, 2)))
        state.update("here")
    handle, files = taken(old, kind)

    with pytest.raises(StateMigrationError, match=r"'m' is a .*Place3, whose fields have changed. Keys never change"):
        program(reader, kind, registry_of(Place3)).restore([handle], files)
    same = program(reader, kind, registry_of(Place))
    same.restore([handle], files)
    assert same.fingerprint() == old.fingerprint()


def test_parts_of_one_snapshot_are_of_one_program() -> None:
    """The record schemas of two subtasks are merged, or refused when they differ."""
    one, other = [["a"], [[40, 1, [["x", "int"]]]]], [["b"], [[41, 1, []]]]

    assert merge_written(None, one) == merge_written(one, None) == merge_written(one, one) == one
    assert merge_written(one, other) == [["a", "b"], [[40, 1, [["x", "int"]]], [41, 1, []]]]
    with pytest.raises(StateSchemaError, match="type code 40 in different forms"):
        merge_written(one, [[], [[40, 1, [["x", "str"]]]]])


@pytest.mark.parametrize(
    ("renames", "reason"), [({"page": "nowhere"}, "is no field"), ({"page": "seconds"}, "is still a field")]
)
def test_a_rename_leads_from_a_former_name_to_a_present_one(renames: dict[str, str], reason: str) -> None:
    """Anything else is a mistake that would lose a field silently."""
    with pytest.raises(StateArgumentError, match=reason):
        registry_of(Visit, renames=renames)


# --- where no schema is written ---------------------------------------------------------------------------------------


def test_without_a_written_schema_names_are_followed() -> None:
    """Former names, defaults and gone fields still work; types are widened when the version is older."""
    encoded = StateCodec(OLD).encode([Visit("p", 5, "r")])
    (same_version,) = StateCodec(NEW).decode(encoded)
    (raised,) = StateCodec(registry_of(Visit2, version=2, renames={"page": "url"})).decode(encoded)

    assert same_version == raised == Visit2("p", 5)
    assert (type(same_version.seconds), type(raised.seconds)) == (int, float)
    with pytest.raises(StateMigrationError, match=r"could not read version 1 .*country"):
        StateCodec(registry_of(NoDefault)).decode(encoded)


# --- any change -------------------------------------------------------------------------------------------------------

VALUES: dict[Any, Any] = {
    int: 3,
    float: 2.5,
    bool: True,
    str: "s",
    int | None: None,
    list[int]: [1, 2],
    dict[str, int]: {"k": 4},
    tuple[int, str]: (1, "t"),
}
WIDER: dict[Any, list[tuple[Any, Any]]] = {
    int: [(float, 3.0), (int | None, 3), (float | None, 3.0)],
    float: [(float | None, 2.5)],
    bool: [(int, 1), (float, 1.0)],
    str: [(str | None, "s"), (Any, "s")],
    int | None: [(float | None, None)],
    list[int]: [(list[float], [1.0, 2.0]), (list, [1, 2])],
    dict[str, int]: [(dict[str, float], {"k": 4.0}), (dict[str, int] | None, {"k": 4})],
    tuple[int, str]: [(tuple[float, str], (1.0, "t")), (tuple, (1, "t"))],
}
NARROWER: dict[Any, list[Any]] = {
    int: [str, bool],
    float: [int],
    bool: [str],
    str: [bytes, int],
    int | None: [int],
    list[int]: [list[str], tuple[int, ...]],
    dict[str, int]: [dict[int, int], list],
    tuple[int, str]: [tuple[int], tuple[str, str]],
}


@st.composite
def evolutions(draw: st.DrawFn) -> tuple[list[Any], list[Any], dict[str, str], dict[str, Any], bool]:
    """Old fields, new fields, renames, expected values, and whether the change is one that old state survives."""
    old = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    new: list[Any] = []
    renames: dict[str, str] = {}
    expected: dict[str, Any] = {}
    survives = True
    for index, annotation in enumerate(old):
        name = f"old{index}"
        fate = draw(st.sampled_from(["keep", "keep", "drop", "rename", "widen", "rename and widen", "break"]))
        if fate == "drop":
            continue
        if "rename" in fate:
            renames[name] = name = f"new{index}"
        value = VALUES[annotation]
        if "widen" in fate:
            annotation, value = draw(st.sampled_from(WIDER[annotation]))
        elif fate == "break":
            annotation = draw(st.sampled_from(NARROWER[annotation]))
            survives = False
        new.append((name, annotation, dataclasses.field()))
        expected[name] = value
    for index in range(draw(st.integers(0, 2))):
        annotation = draw(st.sampled_from(list(VALUES)))
        has_default = draw(st.sampled_from([True, True, False]))
        value = VALUES[annotation]
        field = dataclasses.field(default_factory=lambda value=value: value) if has_default else dataclasses.field()
        new.append((f"added{index}", annotation, field))
        expected[f"added{index}"] = value
        survives = survives and has_default
    if not new:
        new.append(("last", int, dataclasses.field(default=0)))
        expected["last"] = 0
    return old, draw(st.permutations(new)), renames, expected, survives


@paths
def test_any_change_is_followed_or_refused(writer: str, kind: SnapshotType, reader: str) -> None:
    """Random fields through random changes: restored exactly as expected, or refused, and never anything between."""

    @settings(max_examples=25, deadline=None)
    @given(evolutions())
    def check(evolution: Any) -> None:
        old, new, renames, expected, survives = evolution
        before = dataclasses.make_dataclass("R", [(f"old{index}", one) for index, one in enumerate(old)])
        after = dataclasses.make_dataclass("R", new, kw_only=True)
        first, second = registry_of(before), registry_of(after, renames=renames)
        old_program = program(writer, kind, first)
        fill(old_program, before(*[VALUES[one] for one in old]))
        handle, files = taken(old_program, kind)
        keyed = program(reader, kind, second)
        if not survives:
            with pytest.raises(StateMigrationError):
                keyed.restore([handle], files)
            return
        keyed.restore([handle], files)
        like = program(reader, kind, second)
        fill(like, after(**expected))
        assert keyed.fingerprint() == like.fingerprint()

    check()


def test_a_restore_at_another_parallelism_migrates_too() -> None:
    """Each subtask migrates its own part of a native snapshot; one that was cut in two, and two put together."""
    whole = program("lsm", SAVEPOINT, OLD)
    fill(whole, Visit("p", 5, "r"))
    handle, files = taken(whole, SAVEPOINT)
    expected = backend("lsm", NEW)
    fill(expected, Visit2("p", 5.0))
    found = []
    for first, last in ((0, 1), (2, GROUPS - 1)):
        half = backend("lsm", NEW, first, last)
        half.restore([handle], files)
        states_of(half)
        found.append(half.num_entries())

    assert sum(found) == expected.num_entries()
    assert min(found) > 0
