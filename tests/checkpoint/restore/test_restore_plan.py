"""The restore planner: matching by uid, max parallelism, hand-back and rescaling of real handles."""

from __future__ import annotations

import re

import pytest

from engine.checkpoint.coordinator import CheckpointEdge
from engine.checkpoint.restore import (
    RestoreTarget,
    RestoreVertex,
    UnmatchedStateError,
    check_finished_markers,
    plan_restore,
)
from engine.checkpoint.restore.restore_plan import (
    FinishedMarkersError,
    FinishedStatus,
    MaxParallelismMismatchError,
    finished_status,
)
from engine.elements.errors import JobChangedError
from state_backends.base import KeyGroupRange
from state_backends.base.key_groups import key_group_ranges
from state_backends.snapshots import (
    ByteStreamStateHandle,
    ChannelName,
    ChannelStateHandle,
    FullKeyedStateHandle,
    KeyedStateHandle,
    OperatorSnapshot,
    OperatorStateHandle,
    OperatorStateMode,
    StateOffsets,
    SubtaskSnapshot,
)
from state_backends.snapshots.handles import ChannelStatePiece


def keyed(groups: KeyGroupRange, content: bytes = b"k") -> KeyedStateHandle:
    return FullKeyedStateHandle(groups, tuple((group, group * 10) for group in groups), ByteStreamStateHandle(content))


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
    """With the same parallelism every subtask gets exactly the handles that it wrote."""
    ranges = key_group_ranges(8, 2)
    snapshots = [SubtaskSnapshot(keyed(groups), listed(b"%d" % i, names=[0, 5])) for i, groups in enumerate(ranges)]

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
    low, high = (keyed(groups, content) for groups, content in zip(key_group_ranges(8, 2), (b"l", b"h"), strict=True))
    old = operator("sum", SubtaskSnapshot(low), SubtaskSnapshot(high))

    plan = plan_restore([old], [target("sum", 3)])

    groups = [
        [(handle.stream, handle.key_group_range, [group for group, _ in handle.offsets]) for handle in state.keyed]
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

    assert [handle.states["positions"].offsets for handle in plan.subtasks["source", 0].operator] == [(3,), (3,)]


def test_union_state_goes_to_all_subtasks_unscaled() -> None:
    """Every subtask of an unscaled operator gets the union list of all."""
    snapshots = [SubtaskSnapshot(operator=listed(b"%d" % i, OperatorStateMode.UNION, u=[i])) for i in range(2)]

    plan = plan_restore([operator("sink", *snapshots)], [target("sink", 2)])

    assert [snapshot.operator for snapshot in snapshots] == list(plan.subtasks["sink", 0].operator)
    assert plan.subtasks["sink", 0].operator == plan.subtasks["sink", 1].operator


def test_unmatched_state_is_named_uid_by_uid() -> None:
    """The error lists every uid whose state no operator claims, its kind, and the operators that start empty."""
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
    """With the user's permission the rest is restored; the plan says which state was dropped and which uids are new."""
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
    """A stateless operator of the checkpoint need not be in the job."""
    plan = plan_restore([operator("map", SubtaskSnapshot(), max_parallelism=4)], [target("map2", 1)])

    assert plan.dropped == ()
    assert plan.fresh == ("map2",)


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
def test_misfits_are_refused_by_name(parallelism: int, max_parallelism: int, derived: bool, message: str) -> None:
    """An explicit other max parallelism, or more subtasks than key groups, is an error that names the operator."""
    old = operator("sum", SubtaskSnapshot(keyed(KeyGroupRange(0, 7))))

    with pytest.raises(MaxParallelismMismatchError, match=re.escape(message)) as caught:
        plan_restore([old], [target("sum", parallelism, max_parallelism, derived=derived)])

    assert "uid 'sum'" in str(caught.value)
    assert isinstance(caught.value, JobChangedError)


# --- given and generated uids -----------------------------------------------------------------------------------------


def test_state_from_before_the_uid_was_given_is_found() -> None:
    """An operator that has got a uid since claims the state under its generated uid."""
    old = operator("map", SubtaskSnapshot(keyed(KeyGroupRange(0, 7))))
    renamed = RestoreTarget("sum", "sum", 1, 8, generated_uid="map")

    plan = plan_restore([old], [renamed])

    assert plan.subtasks.keys() == {("sum", 0)}
    assert plan.fresh == ()
    assert plan.max_parallelism == {"sum": 8}


def test_the_given_uid_comes_first() -> None:
    """State under the given uid is taken; no operator claims the state under the generated one."""
    old = [operator(uid, SubtaskSnapshot(operator=listed(uid.encode(), s=[0]))) for uid in ("map", "sum")]
    target_of_both = RestoreTarget("sum", "sum", 1, 8, generated_uid="map")

    with pytest.raises(UnmatchedStateError) as caught:
        plan_restore(old, [target_of_both])
    assert caught.value.uids == ("map",)
    plan = plan_restore(old, [target_of_both], allow_non_restored_state=True)
    assert plan.subtasks["sum", 0].operator[0].stream == ByteStreamStateHandle(b"sum")


def test_a_generated_uid_gives_way_to_its_owner() -> None:
    """Where another operator of the job has that uid, the state belongs to it."""
    old = operator("map", SubtaskSnapshot(keyed(KeyGroupRange(0, 7))))

    plan = plan_restore([old], [RestoreTarget("sum", "sum", 1, 8, generated_uid="map"), target("map", 1)])

    assert plan.subtasks.keys() == {("map", 0)}
    assert plan.fresh == ("sum",)


def test_records_in_flight_are_state() -> None:
    """An operator that only had records in flight must be in the job, and its max parallelism is checked."""
    piece = ChannelStatePiece(ChannelName("a>>b", 0, 0), 1, 0)
    channels = ChannelStateHandle((piece,), ByteStreamStateHandle(b"r"))
    old = operator("map", SubtaskSnapshot(input_channels=channels))

    with pytest.raises(UnmatchedStateError, match="records in flight of 1 subtasks"):
        plan_restore([old], [])
    with pytest.raises(MaxParallelismMismatchError):
        plan_restore([old], [target("map", 1, 16)])


# --- finished tasks ---------------------------------------------------------------------------------------------------


def marked(uid: str, *finished: bool) -> OperatorSnapshot:
    return operator(uid, *(SubtaskSnapshot(finished=one) for one in finished))


ALL, SOME, NONE = (True, True), (True, False), (False, False)
TO_ALL, POINTWISE = None, ((0,), (1,))


@pytest.mark.parametrize(
    ("before", "after", "connections", "fine"),
    [
        (ALL, ALL, TO_ALL, True),
        (ALL, SOME, TO_ALL, True),
        (ALL, NONE, TO_ALL, True),
        (SOME, ALL, TO_ALL, False),
        (SOME, ALL, POINTWISE, False),
        (SOME, SOME, TO_ALL, False),
        (SOME, SOME, POINTWISE, True),
        (SOME, NONE, TO_ALL, True),
        (NONE, ALL, TO_ALL, False),
        (NONE, ALL, POINTWISE, False),
        (NONE, SOME, TO_ALL, False),
        (NONE, SOME, POINTWISE, False),
        (NONE, NONE, TO_ALL, True),
    ],
)
def test_finished_vertices_have_finished_predecessors(
    before: tuple[bool, ...], after: tuple[bool, ...], connections: tuple[tuple[int, ...], ...] | None, fine: bool
) -> None:
    """All predecessors of a finished vertex must have finished too, as far as the edge connects them."""
    operators = [marked("source", *before), marked("sink", *after)]
    vertices = [RestoreVertex("source", ("source",)), RestoreVertex("sink", ("sink",))]
    edges = [CheckpointEdge(0, 1, connections)]

    if fine:
        fully = tuple(index for index, markers in enumerate((before, after)) if all(markers))
        assert check_finished_markers(operators, vertices, edges) == fully
    else:
        with pytest.raises(FinishedMarkersError, match=r"vertex 'sink' had .* 'source', which feeds it"):
            check_finished_markers(operators, vertices, edges)


@pytest.mark.parametrize("other", [SOME, NONE, None])
def test_operators_of_one_vertex_agree(other: tuple[bool, ...] | None) -> None:
    """A chain with a finished operator and one that had not, or is new, cannot be restored."""
    operators = [marked("a", *ALL)] + ([] if other is None else [marked("b", *other)])

    with pytest.raises(FinishedMarkersError, match="of its operators, 'a' had fully finished and 'b' had"):
        check_finished_markers(operators, [RestoreVertex("a -> b", ("a", "b"))], [])


def test_a_new_operator_starts_behind_a_finished_one() -> None:
    """After a finished vertex any operator may be added; it starts running."""
    vertices = [RestoreVertex("a", ("a",)), RestoreVertex("new", ("new",))]

    assert check_finished_markers([marked("a", *ALL)], vertices, [CheckpointEdge(0, 1)]) == (0,)


def test_stateless_subtasks_that_ran_are_not_finished() -> None:
    """A subtask without an entry in the checkpoint was running."""
    partly = OperatorSnapshot("a", "a", 2, 8, {0: SubtaskSnapshot(finished=True)})

    assert finished_status(partly) is FinishedStatus.PARTIALLY_FINISHED
    assert check_finished_markers([partly], [RestoreVertex("a", ("a",))], []) == ()
