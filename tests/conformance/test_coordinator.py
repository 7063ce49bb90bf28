"""The coordinator, state and restore against recorded vectors, and a test of the replay itself."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.compare import Vector
from tests.conformance.complaints import check_each
from tests.conformance.coordinator import KINDS
from tests.conformance.runner import DATA, Verdict, load, replay

NAMES = ("coordinator.json", "written/coordinator.json", "modelled.json")
FILES: dict[str, list[Vector]] = {name: load(DATA / name) for name in NAMES}
REPLAYED = [vector for vectors in FILES.values() for vector in vectors]

Path_ = tuple[str | int, ...]


# Each requirement on the replay itself is checked for all vectors of a file in one test.
by_file = pytest.mark.parametrize("vectors", FILES.values(), ids=FILES)


@pytest.mark.parametrize("vector", REPLAYED, ids=[vector["name"] for vector in REPLAYED])
def test_vector(vector: Vector) -> None:
    """The engine does what the vector says, whether it was recorded, written from the rules, or made by a model of the
    rules that was written without knowing the engine; no vector is skipped."""
    result = replay(vector)

    assert result.verdict is Verdict.PASSED, result


def test_every_documented_kind_has_a_replay() -> None:
    """Every kind of the format has a replay, and every replay has a kind of the format."""
    assert KINDS.keys() == json.loads((DATA / "coordinator.json").read_text(encoding="utf-8"))["kinds"].keys()


# --- a wrong expectation is reported ----------------------------------------------------------------------------------

# Notes of an expectation about itself, and values repeated from the input, are not compared.
NOT_COMPARED = {
    "coordinator_sequence": ("after_step",),
    "keyed_state_merge_namespaces": ("compare",),
    "key_grouped_priority_queue": ("element",),
}


def places(expect: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every value inside an expectation: leaves, and lists as a whole."""
    if isinstance(expect, dict) and expect:
        for name, one in expect.items():
            yield from places(one, (*path, name))
    elif isinstance(expect, list):
        yield path
        for position, one in enumerate(expect):
            yield from places(one, (*path, position))
    else:
        yield path


def wrong(value: Any) -> Any:
    """A value other than ``value``, of its type where there is one."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + " or not"
        case list():
            return [*value, "surplus"]
        case dict():
            return {"surplus": 1}
        case _:
            return "something"


def with_wrong(vector: Vector, path: Path_) -> Vector:
    mutant = copy.deepcopy(vector)
    at = mutant["expect"]
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = wrong(at[path[-1]])
    return mutant


def spread(places_: list[Path_], limit: int = 80) -> list[Path_]:
    """At most ``limit`` places, spread from beginning to end."""
    return places_[:: 1 + len(places_) // limit]


def wrong_and_not_reported(vector: Vector) -> Iterator[str]:
    ignored = NOT_COMPARED.get(vector["kind"], ())
    compared = [path for path in places(vector["expect"]) if not any(name in path for name in ignored)]
    if not compared:
        yield "nothing of the expectation is compared"
    if vector["kind"] == "restore_max_parallelism_check" and " " in vector["expect"]["outcome"]:
        # Expectations in words; only their number can be wrong.
        vector = copy.deepcopy(vector)
        vector["expect"]["outcome"] = vector["expect"]["outcome"].replace("6", "7")

    for path in spread(compared):
        result = replay(with_wrong(vector, path))
        if result.verdict is not Verdict.FAILED:
            yield f"{path} is wrong, and the replay says {result}"


@by_file
def test_a_wrong_expectation_is_reported(vectors: list[Vector]) -> None:
    """Whichever value of the expectation is wrong, the replay reports it with its field."""
    check_each(vectors, wrong_and_not_reported)


def expected_and_not_compared(vector: Vector) -> Iterator[str]:
    mutant = copy.deepcopy(vector)
    mutant["expect"]["unheard of"] = 1
    if replay(mutant).verdict is not Verdict.FAILED:
        yield "a further field of the expectation is not compared"

    for name in ("per_op", "per_step", "checks"):
        for position in range(len(vector["expect"].get(name, ()))):
            mutant = copy.deepcopy(vector)
            mutant["expect"][name][position]["unheard of"] = 1
            if replay(mutant).verdict is not Verdict.FAILED:
                yield f"a further field of {name}[{position}] is not compared"


@by_file
def test_every_field_of_an_expectation_is_compared(vectors: list[Vector]) -> None:
    """An unknown field is refused, both at the top and in a step."""
    check_each(vectors, expected_and_not_compared)


def given_and_not_understood(vector: Vector) -> Iterator[str]:
    for at in input_objects(vector["input"]):
        mutant = copy.deepcopy(vector)
        spot = mutant["input"]
        for step in at:
            spot = spot[step]
        spot["unheard of"] = 1
        if "unheard of" not in replay(mutant).text:
            yield f"a further field of the input at {at} is passed over"


@by_file
def test_every_field_of_an_input_is_understood(vectors: list[Vector]) -> None:
    """The replay refuses a setting or an argument that it would ignore: the vector would be replayed wrongly."""
    check_each(vectors, given_and_not_understood)


# Objects whose keys are names and values, not fields.
CONTENT = ("before", "after_sync_part", "values", "per_key_namespace_adds", "states", "ids")


def input_objects(given: Any, at: Path_ = ()) -> Iterator[Path_]:
    if isinstance(given, dict):
        yield at
        for name, one in given.items():
            if name not in CONTENT:
                yield from input_objects(one, (*at, name))
    elif isinstance(given, list):
        for position, one in enumerate(given[:40]):
            yield from input_objects(one, (*at, position))


OPERATIONS = ("op", "event", "e")


def unknown_and_left_out(vector: Vector) -> Iterator[str]:
    for name in ("ops", "steps", "events"):
        for position, step in enumerate(vector["input"].get(name, ())[:40]):
            mutant = copy.deepcopy(vector)
            if isinstance(step, dict):
                (field,) = [one for one in OPERATIONS if one in step]
                mutant["input"][name][position][field] = "unheard of"
            else:
                mutant["input"][name][position] = "unheard of"
            result = replay(mutant)
            if result.verdict is not Verdict.FAILED or "unheard of" not in result.text:
                yield f"{name}[{position}] is unknown, and the replay says {result}"


@by_file
def test_an_unknown_operation_is_reported(vectors: list[Vector]) -> None:
    """No step is left out silently."""
    check_each(vectors, unknown_and_left_out)


def nothing_expected_and_passed(vector: Vector) -> Iterator[str]:
    result = replay(vector | {"expect": {}})
    if result.verdict is not Verdict.FAILED:
        yield f"with an empty expectation the replay says {result}"


def test_a_vector_that_expects_nothing_is_no_success() -> None:
    """An empty expectation would pass whatever the engine does."""
    one_of_each_kind = {vector["kind"]: vector for vector in reversed(REPLAYED)}
    assert one_of_each_kind.keys() == KINDS.keys()

    check_each(one_of_each_kind.values(), nothing_expected_and_passed)


@pytest.mark.parametrize("missing_field", ["input", "expect"])
def test_an_incomplete_vector_is_reported(missing_field: str) -> None:
    """Whatever is missing, the failure names it."""
    vector = copy.deepcopy(REPLAYED[0])
    del vector[missing_field]

    result = replay(vector)

    assert result.verdict is Verdict.FAILED
    assert missing_field in result.text


@pytest.mark.parametrize("kind", ["key_to_key_group", "coordinator_sequence", "keyed_state_ops"])
def test_unknown_words_are_reported(kind: str) -> None:
    """Unknown words of closed lists are a failure of their own kind."""
    vector = copy.deepcopy(next(one for one in REPLAYED if one["kind"] == kind))
    given = vector["input"]
    if kind == "key_to_key_group":
        given["key_type"] = "unheard of"
    elif kind == "keyed_state_ops":
        given["state_type"] = "unheard of"
    else:
        given["tasks"][0]["state"] = "unheard of"

    assert "unheard of" in replay(vector).text


# Where an optional field may be, and the meaning of its absence.
OPTIONAL: list[tuple[str, tuple[str, ...], Any]] = [
    ("empty_snapshot", ("registered_states",), 0),
    ("empty_snapshot", ("entries",), 0),
    ("failure_manager", ("events", "checkpoint"), -1),
    ("checkpoint_plan", ("edges",), []),
    ("checkpoint_plan", ("allow_checkpoints_after_tasks_finished",), True),
    ("request_decider", ("config", "max_concurrent"), 1),
    ("request_decider", ("config", "min_pause_ms"), 0),
    ("stop_with_savepoint", ("executions",), None),
    ("max_parallelism_resolution", ("configured",), None),
    ("completed_store_retention", ("add", "savepoint"), False),
    ("completed_store_retention", ("add", "sync"), False),
]


@pytest.mark.parametrize(("kind", "path", "default"), OPTIONAL, ids=[f"{one[0]} {one[1][-1]}" for one in OPTIONAL])
def test_an_optional_field_may_be_absent(kind: str, path: tuple[str, ...], default: Any) -> None:
    """The replay is that of the vector that contains the default."""
    tried = 0
    for vector in copy.deepcopy([one for one in REPLAYED if one["kind"] == kind]):
        holders = [vector["input"]]
        for step in path[:-1]:
            holders = [one for holder in holders for one in _each(holder[step])]
        for holder in holders:
            if holder.get(path[-1], "absent") == default:
                del holder[path[-1]]
                tried += 1
        assert replay(vector).verdict is Verdict.PASSED, vector
    assert tried


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


_SPLIT = {"handle": "h", "states": {"s": {"mode": "SPLIT_DISTRIBUTE", "offsets": [1]}}}
_TIMER = [{"op": "key", "key": 1}, {"op": "register_processing", "ns": "n", "time": 5}]


@pytest.mark.parametrize(
    ("kind", "given", "expect", "told"),
    [
        (
            "keyed_state_ops",
            {"state_type": "list", "default": 1, "ops": [{"op": "num_entries"}]},
            {"per_op": [{"value": 0}]},
            "no default",
        ),
        (
            "timer_service",
            {"ops": [*_TIMER, {"op": "set_processing_time", "time": 5, "callback_registers": 5}]},
            {"per_op": [{}, {}, {"fired": [[5, 1, "n"]]}]},
            "without end",
        ),
        (
            "key_grouped_priority_queue",
            {"max_parallelism": 8, "elements": [["a", 1]], "order_by": "priority descending"},
            {"then_peek": ["a", 1]},
            "descending",
        ),
        (
            "operator_state_redistribution",
            {"old": [[_SPLIT]], "new_parallelism": 2, "split_state_order": []},
            {"new": [{"h": {"s": [1]}}, {}]},
            "says nothing of 's'",
        ),
    ],
)
def test_what_would_be_replayed_otherwise_than_meant_is_refused(
    kind: str, given: Vector, expect: Vector, told: str
) -> None:
    """A setting that the replay could only pass over is named as the reason of a failure."""
    result = replay({"name": "it", "kind": kind, "input": given, "expect": expect})

    assert result.verdict is Verdict.FAILED
    assert told in result.text
