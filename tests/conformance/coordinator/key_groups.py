"""Key groups: ranges, owners, hashes, and max parallelism."""

from __future__ import annotations

from state_backends.base import (
    INT,
    STRING,
    KeyGroupError,
    KeyGroupRange,
    default_max_parallelism,
    java_hash_code,
    key_group_for,
    key_group_range_for_index,
    operator_index_for_key_group,
)
from state_backends.base.key_groups import (
    key_group_ranges,
    murmur_hash,
    resolve_max_parallelism,
    round_up_to_power_of_two,
)
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields


def _bounds(groups: KeyGroupRange) -> list[int]:
    return [groups.first, groups.last]


def ranges(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"max_parallelism", "parallelism"}, "input")
    owned = key_group_ranges(given["max_parallelism"], given["parallelism"])
    comparison.fields(vector["expect"], {"ranges": [_bounds(one) for one in owned]})
    return comparison.finish()


def range_for_index(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"max_parallelism", "parallelism", "index"}, "input")
    observed: dict[str, object] = {"range": None, "error": None}
    try:
        observed["range"] = _bounds(
            key_group_range_for_index(given["max_parallelism"], given["parallelism"], given["index"])
        )
    except KeyGroupError:
        observed["error"] = "illegal_argument"
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


def operator_index(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"max_parallelism", "parallelism", "key_group"}, "input")
    index = operator_index_for_key_group(given["max_parallelism"], given["parallelism"], given["key_group"])
    comparison.fields(vector["expect"], {"index": index})
    return comparison.finish()


def intersection(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"a", "b"}, "input")
    common = KeyGroupRange(*given["a"]).intersection(KeyGroupRange(*given["b"]))
    comparison.fields(vector["expect"], {"intersection": None if common is None else _bounds(common)})
    return comparison.finish()


def derived_max_parallelism(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"parallelism"}, "input")
    comparison.fields(vector["expect"], {"max_parallelism": default_max_parallelism(given["parallelism"])})
    return comparison.finish()


def max_parallelism_resolution(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"parallelism", "configured", "rescale_to"}, "input")
    resolved = resolve_max_parallelism(given["parallelism"], given.get("configured"))
    observed = {
        "max_parallelism": resolved.value,
        # Whether it may be adopted; a number that the user gave is never replaced, not even by itself.
        "can_rescale_max_to": resolved.derived and resolved.can_rescale_to(given["rescale_to"]),
    }
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


def power_of_two(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"x"}, "input")
    comparison.fields(vector["expect"], {"result": round_up_to_power_of_two(given["x"])})
    return comparison.finish()


def key_to_key_group(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"key", "key_type", "max_parallelism"}, "input")
    types = {"int": INT, "string": STRING}
    if given["key_type"] not in types:
        raise MalformedVector(f"unknown key type {given['key_type']!r}")
    key_type, key = types[given["key_type"]], given["key"]
    hash_code = java_hash_code(key, key_type)
    observed = {
        "key_group": key_group_for(key, given["max_parallelism"], key_type),
        "murmur": murmur_hash(hash_code),
        "java_hash_code": hash_code,
    }
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


KINDS = {
    "key_group_ranges": ranges,
    "key_group_range_for_index": range_for_index,
    "operator_index_for_key_group": operator_index,
    "key_group_intersection": intersection,
    "default_max_parallelism": derived_max_parallelism,
    "max_parallelism_resolution": max_parallelism_resolution,
    "round_up_to_power_of_two": power_of_two,
    "key_to_key_group": key_to_key_group,
}
