"""The end of a bounded job: which vertex may finish when, and how often the last checkpoint is tried."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.coordinator import TaskId
from engine.runtime.job.end_of_input import EndOfInput

A0, A1, B0, SINK = (0, 0), (0, 1), (1, 0), (2, 0)
TASKS = (A0, A1, B0, SINK)


def machine(*, finish_early: bool = True, attempts: int = 3) -> EndOfInput:
    """A vertex of two subtasks, and two of one."""
    return EndOfInput(TASKS, finish_early=finish_early, final_attempts=attempts)


def ended(end: EndOfInput, *tasks: TaskId, next_id: int = 5) -> None:
    for task in tasks:
        end.task_ended(task, next_id)
        end.validate()


def test_a_vertex_goes_with_the_first_checkpoint_that_began_after_its_end() -> None:
    """A checkpoint that began before the end of the vertex does not contain that end."""
    end = machine()
    ended(end, A0, A1, next_id=5)

    assert end.checkpoint_completed(4) == ()
    assert end.checkpoint_completed(5) == (A0, A1)
    assert end.checkpoint_completed(6) == ()


def test_any_later_checkpoint_will_do() -> None:
    """When the first one failed, the next one contains the end as well."""
    end = machine()
    ended(end, B0, next_id=5)

    assert end.checkpoint_completed(9) == (B0,)


def test_a_vertex_goes_as_a_whole() -> None:
    """Half a vertex may not finish: it waits for its last subtask, and for a checkpoint that began after that."""
    end = machine()
    ended(end, A0, next_id=2)
    assert end.checkpoint_completed(3) == ()
    ended(end, A1, next_id=5)

    assert end.checkpoint_completed(4) == ()
    assert end.checkpoint_completed(5) == (A0, A1)


def test_what_is_no_source_waits_as_well() -> None:
    """Every vertex finishes as a whole, with its own checkpoint: that of its inputs may be too early for it."""
    end = machine()
    ended(end, A0, A1, next_id=2)
    ended(end, SINK, next_id=3)

    assert end.checkpoint_completed(2) == (A0, A1)
    assert end.checkpoint_completed(3) == (SINK,)


def test_switched_off_nobody_goes_early() -> None:
    """All tasks stay until the last checkpoint."""
    end = machine(finish_early=False)
    ended(end, A0, A1, B0, next_id=2)

    assert end.checkpoint_completed(7) == ()


def test_the_last_checkpoint_is_asked_for_once() -> None:
    """When all tasks have come to their end, and again only after it has failed."""
    end = machine()
    ended(end, A0, A1, B0)
    assert not end.request_final()
    ended(end, SINK)

    assert end.request_final()
    assert not end.request_final()
    assert end.final_failed()
    assert end.request_final()


def test_the_last_checkpoint_may_not_fail_for_ever() -> None:
    """Three attempts: the third failure in a row is final."""
    end = machine(attempts=3)

    assert [end.final_failed() for _ in range(3)] == [True, True, False]
    end = machine(attempts=3)
    assert [end.final_failed(), end.final_failed()] == [True, True]
    end.deployed(TASKS)
    assert end.final_failed()


def test_what_is_deployed_anew_begins_anew() -> None:
    """A restarted region has to reach its end again, and waits for another checkpoint."""
    end = machine()
    ended(end, *TASKS, next_id=5)
    end.task_finished(SINK)
    end.deployed((A0, A1, SINK))

    assert not end.all_ended
    assert end.checkpoint_completed(5) == (B0,)
    ended(end, A0, A1, next_id=9)
    assert end.checkpoint_completed(8) == ()
    assert end.checkpoint_completed(9) == (A0, A1)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("end"), st.sampled_from(TASKS)),
            st.tuples(st.just("deploy"), st.sampled_from(TASKS)),
            st.tuples(st.just("complete"), st.integers(0, 3)),
        ),
        max_size=40,
    )
)
def test_nobody_goes_without_a_checkpoint_behind_its_end(steps: list[tuple[str, object]]) -> None:
    """Whatever happens in whatever order: who may go has ended, with its whole vertex, before that checkpoint began."""
    end, next_id, ended_at = machine(), 1, dict.fromkeys(TASKS, 0)
    for what, argument in steps:
        if what == "end" and not ended_at[argument]:  # type: ignore[index]
            ended_at[argument] = next_id  # type: ignore[index]
            end.task_ended(argument, next_id)  # type: ignore[arg-type]
        elif what == "deploy":
            # A region: at least the vertex.
            region = [task for task in TASKS if task[0] == argument[0]]  # type: ignore[index]
            ended_at.update(dict.fromkeys(region, 0))
            end.deployed(region)
        elif what == "complete":
            began = next_id + 1 - argument  # type: ignore[operator]
            next_id += 2
            for task in end.checkpoint_completed(began):
                assert all(0 < ended_at[one] <= began for one in TASKS if one[0] == task[0]), (task, began, ended_at)
        end.validate()
        hash(end.fingerprint())


@pytest.mark.parametrize("next_id", [1, 8])
def test_fingerprints_tell_states_apart(next_id: int) -> None:
    """Two machines that will behave differently look different."""
    end, other = machine(), machine()
    ended(end, B0, next_id=next_id)
    ended(other, B0, next_id=5)

    assert end.fingerprint() != other.fingerprint()


def test_a_later_checkpoint_takes_the_place_of_a_last_one_that_failed() -> None:
    """A checkpoint that began after the end of all input will do; one that began before will not."""
    end = machine(finish_early=False)
    ended(end, *TASKS, next_id=5)
    assert end.request_final()
    assert not end.replaces_final(6), "the last one is under way"
    assert end.final_failed()
    before = end.fingerprint()

    assert not end.replaces_final(4)
    assert end.fingerprint() == before
    assert end.replaces_final(6)
    assert not end.replaces_final(7), "once is enough"
    assert not end.request_final()


def test_who_was_told_to_finish_leaves_until_it_is_deployed_anew() -> None:
    """Early or with all other vertices."""
    end = machine()
    ended(end, A0, A1, next_id=5)
    end.checkpoint_completed(5)
    assert end.is_leaving(A0[0])
    assert not end.is_leaving(B0[0])

    end.deployed([A0])
    assert not end.is_leaving(A0[0])
    end.all_leave()
    assert all(end.is_leaving(vertex) for vertex, _ in TASKS)
