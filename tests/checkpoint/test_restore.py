"""The restore planner: matching by uid, max parallelism, hand-back and rescaling of real handles."""

from __future__ import annotations

import re

import pytest

from engine.checkpoint.restore import (
    MaxParallelismMismatchError,
    RestoreTarget,
    UnmatchedStateError,
    plan_restore,
    resolve_max_parallelism_of_state,
)
from engine.elements.errors import JobChangedError
from state_backends.checkpoint_metadata import OperatorSnapshot, SubtaskSnapshot
from state_backends.handles import (
    ByteStreamStateHandle,
    KeyedStateHandle,
    OperatorStateHandle,
    OperatorStateMode,
    StateOffsets,
)
from state_backends.key_groups import KeyGroupRange, key_group_ranges, resolve_max_parallelism
from tests.checkpoint.vectors import Vector, of_kind


def keyed(groups: KeyGroupRange, content: bytes = b"k") -> KeyedStateHandle:
    return KeyedStateHandle(
        groups, tuple((group, group * 10) for group in groups), ByteStreamStateHandle(content)
    )


def listed(
    content: bytes, mode: OperatorStateMode = OperatorStateMode.SPLIT_DISTRIBUTE, **names: list[int]
) -> OperatorStateHandle:
    states = {name: StateOffsets(mode, tuple(offsets)) for name, offsets in names.items()}
    return OperatorStateHandle(states, ByteStreamStateHandle(content))


def operator(uid: str, *subtasks: SubtaskSnapshot, max_parallelism: int = 8) -> OperatorSnapshot:
    return OperatorSnapshot(uid, f"name of {uid}", len(subtasks), max_parallelism, dict(enumerate(subtasks)))


def target(uid: str, parallelism: int, max_parallelism: int = 8, *, derived: bool = False) -> RestoreTarget:
    return RestoreTarget(uid, f"new {uid}", parallelism, max_parallelism, derived)


def test_same_parallelism_hands_back_the_very_handles() -> None:
    """Unscaled, every subtask gets exactly what it wrote."""
    ranges = key_group_ranges(8, 2)
    snapshots = [
        SubtaskSnapshot(keyed(groups), listed(b"%d" % i, names=[0, 5])) for i, groups in enumerate(ranges)
    ]

    plan = plan_restore([operator("sum", *snapshots)], [target("sum", 2)])

    for subtask, snapshot in enumerate(snapshots):
        (keyed_handle,), (operator_handle,) = (
            plan.subtasks["sum", subtask].keyed,
            plan.subtasks["sum", subtask].operator,
        )
        assert keyed_handle is snapshot.keyed
        assert operator_handle is snapshot.operator


def test_rescaled_keyed_state_is_cut_to_the_own_groups() -> None:
    """Two subtasks on three: the middle one reads the end of the first handle and the start of the second."""
    low, high = (
        keyed(groups, content) for groups, content in zip(key_group_ranges(8, 2), (b"l", b"h"), strict=True)
    )
    old = operator("sum", SubtaskSnapshot(low), SubtaskSnapshot(high))

    plan = plan_restore([old], [target("sum", 3)])

    groups = [
        [
            (handle.stream, handle.key_group_range, [group for group, _ in handle.offsets])
            for handle in state.keyed
        ]
        for state in (plan.subtasks["sum", subtask] for subtask in range(3))
    ]
    assert groups == [
        [(low.stream, KeyGroupRange(0, 2), [0, 1, 2])],
        [(low.stream, KeyGroupRange(3, 3), [3]), (high.stream, KeyGroupRange(4, 5), [4, 5])],
        [(high.stream, KeyGroupRange(6, 7), [6, 7])],
    ]


def test_rescaled_operator_state_keeps_equal_streams_apart() -> None:
    """Two subtasks whose bytes happen to be equal are still two: no item is lost."""
    twin = [SubtaskSnapshot(operator=listed(b"same", positions=[3])) for _ in range(2)]

    plan = plan_restore([operator("source", *twin)], [target("source", 1)])

    assert [handle.states["positions"].offsets for handle in plan.subtasks["source", 0].operator] == [
        (3,),
        (3,),
    ]


def test_union_state_goes_to_all_subtasks_unscaled() -> None:
    """Every subtask of an unscaled operator gets the union list of all."""
    snapshots = [
        SubtaskSnapshot(operator=listed(b"%d" % i, OperatorStateMode.UNION, u=[i])) for i in range(2)
    ]

    plan = plan_restore([operator("sink", *snapshots)], [target("sink", 2)])

    assert [snapshot.operator for snapshot in snapshots] == list(plan.subtasks["sink", 0].operator)
    assert plan.subtasks["sink", 0].operator == plan.subtasks["sink", 1].operator


def test_unmatched_state_is_named_uid_by_uid() -> None:
    """The error lists every uid whose state nobody claims, what it is, and who starts empty instead."""
    old = [
        operator("gone", SubtaskSnapshot(keyed(KeyGroupRange(0, 7)))),
        operator("also-gone", SubtaskSnapshot(operator=listed(b"x", offsets=[0], files=[4]))),
        operator("kept", SubtaskSnapshot(keyed(KeyGroupRange(0, 7)))),
    ]

    with pytest.raises(UnmatchedStateError) as caught:
        plan_restore(old, [target("kept", 1), target("renamed", 1)])

    assert isinstance(caught.value, JobChangedError)
    assert caught.value.uids == ("gone", "also-gone")
    assert str(caught.value).splitlines() == [
        "the checkpoint holds state that no operator of the job claims:",
        "  uid 'gone' (name of gone, parallelism 1): keyed state of 1 subtasks",
        "  uid 'also-gone' (name of also-gone, parallelism 1): operator state 'files', 'offsets'",
        "operators of the job that have no state in the checkpoint:",
        "  uid 'renamed' (new renamed)",
        "  if an operator was renamed, give it its old uid; to drop this state on purpose, allow non-restored state",
    ]


def test_unmatched_state_may_be_dropped_on_purpose() -> None:
    """With the permission of the user the rest is restored, and the plan says what was dropped and what is new."""
    state = SubtaskSnapshot(keyed(KeyGroupRange(0, 7)))

    plan = plan_restore(
        [operator("gone", state), operator("kept", state)],
        [target("kept", 1), target("new", 1)],
        allow_non_restored_state=True,
    )

    assert plan.dropped == ("gone",)
    assert plan.fresh == ("new",)
    assert {("kept", 0)} == set(plan.subtasks)
    assert plan.for_subtask("new", 0) is None


def test_operator_without_state_may_vanish() -> None:
    """A stateless operator of the checkpoint is missed by nobody."""
    plan = plan_restore([operator("map", SubtaskSnapshot(), max_parallelism=4)], [target("map2", 1)])

    assert plan.dropped == ()
    assert plan.fresh == ("map2",)


@of_kind("restore_max_parallelism_check")
def test_recorded_max_parallelism_check(vector: Vector) -> None:
    """The same max parallelism is fine."""
    given = vector["input"]
    restored = target(
        "sum",
        given["vertex_parallelism"],
        given["vertex_max_parallelism"],
        derived=given["vertex_max_auto_derived"],
    )

    assert vector["expect"]["outcome"] == "ok"
    assert resolve_max_parallelism_of_state(given["state_max_parallelism"], restored) == 128


@of_kind("max_parallelism_resolution")
def test_recorded_resolution(vector: Vector) -> None:
    """Only a derived max parallelism gives way to that of the state."""
    given, expect = vector["input"], vector["expect"]
    resolved = resolve_max_parallelism(given["parallelism"], given["configured"])
    assert resolved.value == expect["max_parallelism"]
    restored = target("sum", 1, resolved.value, derived=resolved.derived)

    if expect["can_rescale_max_to"]:
        assert resolve_max_parallelism_of_state(given["rescale_to"], restored) == given["rescale_to"]
    else:
        with pytest.raises(MaxParallelismMismatchError):
            resolve_max_parallelism_of_state(given["rescale_to"], restored)


def test_max_parallelism_of_the_state_wins_over_a_derived_one() -> None:
    """The plan says with which max parallelism to run, and cuts the key groups by it."""
    old = operator("sum", SubtaskSnapshot(keyed(KeyGroupRange(0, 3))), max_parallelism=4)

    plan = plan_restore([old], [target("sum", 2, 128, derived=True), target("map", 2, 128)])

    assert plan.max_parallelism == {"sum": 4, "map": 128}
    assert plan.subtasks["sum", 1].keyed[0].key_group_range == KeyGroupRange(2, 3)


@pytest.mark.parametrize(
    ("parallelism", "max_parallelism", "derived", "message"),
    [
        (2, 16, False, "max parallelism 16, but its state was written with 8"),
        (9, 16, True, "parallelism 9, but its state was written with max parallelism 8"),
    ],
)
def test_misfits_are_refused_by_name(
    parallelism: int, max_parallelism: int, derived: bool, message: str
) -> None:
    """An explicit other max parallelism, or more subtasks than key groups, is an error that names the operator."""
    old = operator("sum", SubtaskSnapshot(keyed(KeyGroupRange(0, 7))))

    with pytest.raises(MaxParallelismMismatchError, match=re.escape(message)) as caught:
        plan_restore([old], [target("sum", parallelism, max_parallelism, derived=derived)])

    assert "uid 'sum'" in str(caught.value)
    assert isinstance(caught.value, JobChangedError)
