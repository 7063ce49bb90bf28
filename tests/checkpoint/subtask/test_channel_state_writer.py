"""Channel state is collected per checkpoint: opened before, ended once on each side, dropped when aborted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.checkpoint.subtask import ChannelState, ChannelStateWriter
from engine.checkpoint.subtask.channel_state_writer import DEFAULT_MAX_OPEN
from engine.elements.batch import Batch


def batch(*values: Any) -> Batch:
    return Batch(list(values))


def opened(*checkpoint_ids: int) -> ChannelStateWriter:
    writer = ChannelStateWriter()
    for checkpoint_id in checkpoint_ids:
        writer.open(checkpoint_id)
    return writer


# --- both parts -------------------------------------------------------------------------------------------------------


def test_what_was_collected_is_taken_in_order_and_by_channel() -> None:
    """Input and output apart, per channel, in the order in which records were added."""
    writer = opened(1)
    writer.add_input(1, 7, [batch(1), batch(2, 3)])
    writer.add_output(1, 7, [batch("out")])
    writer.add_input(1, 2, [batch("other")])
    writer.add_input(1, 7, [batch(4)])
    writer.finish_input(1)
    writer.finish_output(1)

    state = writer.take(1)

    assert state.inputs == {7: [batch(1), batch(2, 3), batch(4)], 2: [batch("other")]}
    assert state.outputs == {7: [batch("out")]}
    assert (state.input_records(7), state.input_records(9)) == (4, 0)
    assert (state.output_records(7), state.output_records(2)) == (1, 0)
    assert tuple(writer.collecting) == ()


def test_checkpoints_are_kept_apart() -> None:
    """A record may be in flight for two checkpoints; each has its own list."""
    writer = opened(1, 2)

    writer.add_input(1, 0, [batch("a")])
    writer.add_input(2, 0, [batch("a"), batch("b")])

    assert writer.captured(1) == ChannelState({0: [batch("a")]})
    assert writer.captured(2) == ChannelState({0: [batch("a"), batch("b")]})
    assert tuple(writer.collecting) == (1, 2)


def test_it_is_complete_when_both_parts_have_ended() -> None:
    """In either order, and not before."""
    for first, second in (("finish_input", "finish_output"), ("finish_output", "finish_input")):
        writer = opened(1)
        assert not writer.is_complete(1)
        getattr(writer, first)(1)
        assert not writer.is_complete(1)
        getattr(writer, second)(1)
        assert writer.is_complete(1)


def test_taking_what_is_not_complete_is_a_bug() -> None:
    """Half a channel state would lose records."""
    writer = opened(1)
    writer.finish_input(1)

    with pytest.raises(AssertionError):
        writer.take(1)


# --- reserved slots ---------------------------------------------------------------------------------------------------


def test_reserved_slots_keep_the_output_part_open() -> None:
    """Each on its own channel, however they end: with records, or empty because the barrier was taken in time."""
    writer = opened(1)
    writer.finish_input(1)
    writer.reserve_output(1, 4)
    writer.reserve_output(1, 5)
    writer.add_output(1, 6, [batch("overtaken at once")])
    writer.finish_output(1)

    writer.fill_output(1, 5)
    assert not writer.is_complete(1)
    writer.fill_output(1, 4, [batch("overtaken later")])

    assert writer.is_complete(1)
    assert writer.take(1).outputs == {6: [batch("overtaken at once")], 5: [], 4: [batch("overtaken later")]}


def test_a_slot_that_fails_spoils_the_checkpoint() -> None:
    """It can never be complete, whichever parts end later."""
    writer = opened(1)
    writer.finish_input(1)
    writer.reserve_output(1, 4)
    writer.reserve_output(1, 5)
    writer.finish_output(1)
    assert not writer.is_failed(1)

    writer.fail_output(1, 4)
    writer.fill_output(1, 5)

    assert writer.is_failed(1)
    assert not writer.is_complete(1)


def test_a_slot_is_reserved_once_per_channel() -> None:
    """One barrier of a checkpoint passes a channel."""
    writer = opened(1)
    writer.reserve_output(1, 4)

    with pytest.raises(AssertionError):
        writer.reserve_output(1, 4)


def test_filling_what_was_not_reserved_is_a_bug() -> None:
    """Its checkpoint would not have waited for it."""
    writer = opened(1)

    with pytest.raises(KeyError):
        writer.fill_output(1, 4)


# --- the wrong moment -------------------------------------------------------------------------------------------------

ADDITIONS: dict[str, Callable[[ChannelStateWriter, int], None]] = {
    "add_input": lambda writer, one: writer.add_input(one, 0, [batch(1)]),
    "finish_input": lambda writer, one: writer.finish_input(one),
    "add_output": lambda writer, one: writer.add_output(one, 0, [batch(1)]),
    "reserve_output": lambda writer, one: writer.reserve_output(one, 0),
    "fill_output": lambda writer, one: writer.fill_output(one, 0),
    "fail_output": lambda writer, one: writer.fail_output(one, 0),
    "finish_output": lambda writer, one: writer.finish_output(one),
}


@pytest.mark.parametrize("name", ADDITIONS)
def test_nothing_may_be_added_before_the_checkpoint_is_opened(name: str) -> None:
    """The capturing side must open the checkpoint first."""
    writer = opened(1)

    with pytest.raises(AssertionError, match="checkpoint 2 was never opened"):
        ADDITIONS[name](writer, 2)


@pytest.mark.parametrize(
    ("name", "end"),
    [("add_input", "finish_input"), ("add_output", "finish_output"), ("reserve_output", "finish_output")],
)
def test_nothing_may_be_added_after_its_part_has_ended(name: str, end: str) -> None:
    """It would be missing from the written state."""
    writer = opened(1)
    getattr(writer, end)(1)

    with pytest.raises(AssertionError, match="has ended"):
        ADDITIONS[name](writer, 1)


@pytest.mark.parametrize("name", ADDITIONS)
def test_what_comes_for_an_aborted_checkpoint_is_thrown_away(name: str) -> None:
    """The writer may learn of the abort before every capturing channel does."""
    writer = opened(1)
    writer.add_input(1, 0, [batch(1)])
    writer.abort(1)

    ADDITIONS[name](writer, 1)

    assert writer.captured(1) == ChannelState()
    assert 1 not in writer.collecting
    assert not writer.is_complete(1)
    assert not writer.is_failed(1)


def test_an_abort_is_harmless_at_any_time() -> None:
    """Before the checkpoint is opened, twice, after it was taken."""
    writer = opened(1)
    writer.abort(9)
    writer.finish_input(1)
    writer.finish_output(1)
    writer.take(1)

    writer.abort(1)
    writer.open(9)

    assert tuple(writer.collecting) == (9,)


@pytest.mark.parametrize("earlier", [3, 2])
def test_checkpoints_are_opened_in_order_and_once(earlier: int) -> None:
    """Even when the one before is over."""
    writer = opened(3)
    writer.abort(3)

    with pytest.raises(AssertionError, match=f"checkpoint {earlier} after 3"):
        writer.open(earlier)


def test_only_so_many_may_be_open() -> None:
    """A leak shows before it fills the memory."""
    writer = ChannelStateWriter(max_open=2)
    writer.open(1)
    writer.open(2)
    with pytest.raises(AssertionError, match="of 2 checkpoints is open already"):
        writer.open(3)

    writer.abort(1)
    writer.open(3)

    assert tuple(writer.collecting) == (2, 3)
    assert DEFAULT_MAX_OPEN == 1_000


def test_the_fingerprint_tells_how_far_each_part_is() -> None:
    """Every step that affects later behaviour changes it."""

    def after(*steps: str) -> object:
        writer = opened(1)
        for step in steps:
            ADDITIONS[step](writer, 1)
        return writer.fingerprint()

    assert after("add_input") == after("add_input")
    different = [
        ChannelStateWriter().fingerprint(),
        after(),
        after("add_input"),
        after("add_output"),
        after("finish_input"),
        after("finish_output"),
        after("reserve_output"),
        after("reserve_output", "fill_output"),
        after("reserve_output", "fail_output"),
    ]
    assert len(set(different)) == len(different)


# --- any order --------------------------------------------------------------------------------------------------------


class AnyOrder(RuleBasedStateMachine):
    """Two channels on each side, several checkpoints, compared with plain dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = ChannelStateWriter(max_open=3)
        self.highest = 0
        self.inputs: dict[int, dict[int, list[int]]] = {}
        self.outputs: dict[int, dict[int, list[int]]] = {}
        self.input_open: set[int] = set()
        self.output_open: set[int] = set()
        self.slots: set[tuple[int, int]] = set()
        self.failed: set[int] = set()
        self.aborted: set[int] = set()
        self.records = 0

    def _known(self) -> list[int]:
        return [one for one in self.inputs if one not in self.aborted]

    def _batch(self) -> Batch:
        self.records += 1
        return batch(self.records)

    @precondition(lambda self: len(self._known()) < 3)
    @rule(skipped=st.integers(0, 2))
    def open(self, skipped: int) -> None:
        """The next checkpoint, or a later one."""
        self.highest += 1 + skipped
        self.writer.open(self.highest)
        self.inputs[self.highest], self.outputs[self.highest] = {}, {}
        self.input_open.add(self.highest)
        self.output_open.add(self.highest)

    @precondition(lambda self: self.inputs)
    @rule(data=st.data(), channel=st.integers(0, 1))
    def add_input(self, data: st.DataObject, channel: int) -> None:
        """To a checkpoint whose input part is open, or that was aborted."""
        allowed = sorted(self.input_open | self.aborted)
        if allowed:
            one, added = data.draw(st.sampled_from(allowed)), self._batch()
            self.writer.add_input(one, channel, [added])
            self.inputs[one].setdefault(channel, []).extend(added.values)

    @precondition(lambda self: self.inputs)
    @rule(data=st.data(), channel=st.integers(0, 1), reserve=st.booleans())
    def add_output(self, data: st.DataObject, channel: int, reserve: bool) -> None:
        """The same for the output part: at once, or later."""
        allowed = sorted(self.output_open | self.aborted)
        if not allowed:
            return
        one = data.draw(st.sampled_from(allowed))
        if not reserve:
            added = self._batch()
            self.writer.add_output(one, channel, [added])
            self.outputs[one].setdefault(channel, []).extend(added.values)
        elif (one, channel) not in self.slots:
            self.writer.reserve_output(one, channel)
            self.slots.add((one, channel))

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), fails=st.booleans())
    def end_slot(self, data: st.DataObject, fails: bool) -> None:
        one, channel = data.draw(st.sampled_from(sorted(self.slots)))
        self.slots.discard((one, channel))
        if fails:
            self.writer.fail_output(one, channel)
            self.failed.add(one)
        else:
            added = self._batch()
            self.writer.fill_output(one, channel, [added])
            self.outputs[one].setdefault(channel, []).extend(added.values)

    @precondition(lambda self: self.inputs)
    @rule(data=st.data(), is_input=st.booleans())
    def end_part(self, data: st.DataObject, is_input: bool) -> None:
        one = data.draw(st.sampled_from(sorted(self.inputs)))
        if is_input:
            self.writer.finish_input(one)
            self.input_open.discard(one)
        else:
            self.writer.finish_output(one)
            self.output_open.discard(one)

    @precondition(lambda self: self.inputs)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(sorted(self.inputs)))
        self.writer.abort(one)
        self.aborted.add(one)
        self.input_open.discard(one)
        self.output_open.discard(one)

    @rule()
    def take(self) -> None:
        for one in self._known():
            if self._is_complete(one):
                state = self.writer.take(one)
                assert _plain(state.inputs) == self.inputs[one]
                assert _plain(state.outputs) == self.outputs[one]
                self.aborted.add(one)

    def _is_complete(self, one: int) -> bool:
        is_held = any(slot == one for slot, _ in self.slots)
        return one not in (self.input_open | self.output_open | self.failed) and not is_held

    @invariant()
    def agree(self) -> None:
        """Writer and dicts say the same."""
        self.writer.validate()
        assert tuple(self.writer.collecting) == tuple(self._known())
        for one in self.inputs:
            alive = one not in self.aborted
            assert (one in self.writer.collecting) == alive
            assert self.writer.is_complete(one) == (alive and self._is_complete(one))
            assert self.writer.is_failed(one) == (alive and one in self.failed)
            if alive:
                assert _plain(self.writer.captured(one).inputs) == self.inputs[one]


def _plain(channels: dict[int, list[Batch]]) -> dict[int, list[int]]:
    return {channel: [value for one in batches for value in one.values] for channel, batches in channels.items()}


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestAnyOrder = AnyOrder.TestCase
