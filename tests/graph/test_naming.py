"""Names and uids: made ones are unique and deterministic, given ones are kept."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

from engine.graph.naming import UID_PATTERN, NodeLabel, name_problem, resolve_labels, uid_problem, uid_stem


@dataclass(frozen=True)
class Declared:
    id: int
    kind: str
    declared_name: str | None = None
    declared_uid: str | None = None


def test_made_names_are_numbered_in_order_of_definition() -> None:
    """The second map is map-2, whatever stands between."""
    labels = resolve_labels([Declared(0, "map"), Declared(1, "filter"), Declared(2, "map"), Declared(3, "map")])

    assert [labels[i].name for i in range(4)] == ["map", "filter", "map-2", "map-3"]


def test_made_names_step_over_given_ones() -> None:
    """A given name is kept even when it looks like a made one and comes later."""
    labels = resolve_labels([Declared(0, "map"), Declared(1, "map"), Declared(2, "map", declared_name="map-2")])

    assert [labels[i].name for i in range(3)] == ["map", "map-3", "map-2"]


def test_uid_is_made_from_the_name() -> None:
    """A uid that was not given is the name, with the characters replaced that file names cannot have."""
    labels = resolve_labels([Declared(0, "map", "count per day/carrier"), Declared(1, "map", "é")])

    assert labels == {
        0: NodeLabel("count per day/carrier", "count-per-day-carrier", "count-per-day-carrier"),
        1: NodeLabel("é", "operator", "operator"),
    }


def test_made_uids_step_over_given_ones() -> None:
    """A made uid never meets a given one, whichever comes first."""
    labels = resolve_labels([Declared(0, "map"), Declared(1, "filter", declared_uid="map")])

    assert [labels[i].uid for i in range(2)] == ["map-2", "map"]


texts = st.one_of(st.none(), st.sampled_from(["a", "a-2", "a b", "a-b", "map", "map-2"]), st.text(max_size=5))


@given(st.lists(st.tuples(st.sampled_from(["map", "a"]), texts), max_size=12))
def test_made_labels_are_unique(declared: list[tuple[str, str | None]]) -> None:
    """Whatever names are given, made names differ from all others and made uids fit into a file name."""
    given_names = list(dict.fromkeys(name for _, name in declared if name is not None))
    nodes = [Declared(i, kind) for i, (kind, _) in enumerate(declared)]
    nodes += [Declared(len(nodes) + i, "map", name) for i, name in enumerate(given_names)]

    labels = resolve_labels(nodes)

    assert len({label.name for label in labels.values()}) == len(nodes)
    assert len({label.uid for label in labels.values()}) == len(nodes)
    assert all(UID_PATTERN.fullmatch(label.uid) for label in labels.values())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a\nb", "cannot be printed"),
        ("map[0]", "mark subtasks and chains"),
        ("a -> b", "mark subtasks and chains"),
        ("x" * 121, "121 characters"),
        (7, "must be a str, not int"),
    ],
)
def test_bad_names_are_refused(name: object, why: str) -> None:
    """A name that is unreadable or would make subtask names ambiguous is refused with the reason."""
    problem = name_problem(name)

    assert problem is not None
    assert why in problem


@pytest.mark.parametrize(
    ("uid", "why"),
    [
        ("", "file name"),
        ("a/b", "uid='a-b'"),
        ("..", "file name"),
        ("-x", "uid='x'"),
        ("x" * 121, "121 characters"),
        (None, "must be a str"),
    ],
)
def test_bad_uids_are_refused(uid: object, why: str) -> None:
    """A uid that cannot stand in a file name is refused, with one that can."""
    problem = uid_problem(uid)

    assert problem is not None
    assert why in problem


def test_good_labels_have_no_problem() -> None:
    """Ordinary names and uids pass."""
    assert name_problem("Départs par jour (2013)") is None
    assert uid_problem("departures_per-day.v2") is None
    assert name_problem("x" * 120) is None
    assert uid_problem("x" * 120) is None


@given(st.text(max_size=200))
def test_uid_stem_is_a_good_uid(name: str) -> None:
    """Every uid made from a name is one that could have been given."""
    assert uid_problem(uid_stem(name)) is None
