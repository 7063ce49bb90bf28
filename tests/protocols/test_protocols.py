"""Protocols by name: the promise of each, the barriers it sends and the handler it gives a task."""

from __future__ import annotations

import pytest

from engine.checkpoint.barriers import (
    AtLeastOnceTracker,
    BlockChannel,
    InputCapture,
    ResumeChannels,
    SingleCheckpointHandler,
    TriggerSnapshot,
)
from engine.elements.errors import ConfigurationError
from engine.elements.events import AlignmentType, CheckpointBarrier
from engine.protocols import PROTOCOLS, CheckpointProtocol, protocol_named
from engine.protocols.barriers import (
    AlignedBarriers,
    AlignedWithTimeoutBarriers,
    AtLeastOnceBarriers,
    NoCheckpoints,
    UnalignedBarriers,
)

ALL = sorted(PROTOCOLS.values(), key=lambda protocol: protocol.name)


@pytest.mark.parametrize("protocol", ALL, ids=lambda protocol: protocol.name)
def test_protocols_are_found_by_their_own_name(protocol: CheckpointProtocol) -> None:
    """The name a protocol has is the name under which it is registered."""
    assert protocol_named(protocol.name) == protocol


def test_exactly_once_is_the_aligned_protocol() -> None:
    """The guarantee may be asked for by its usual name."""
    assert protocol_named("exactly-once").name == "aligned"


@pytest.mark.parametrize(
    ("name", "hint"), [("alined", "did you mean 'aligned'?"), ("at_least_once", "did you mean 'at-least-once'?")]
)
def test_a_misspelt_mode_is_corrected(name: str, hint: str) -> None:
    """An unknown mode is an error that suggests the nearest one and lists all."""
    with pytest.raises(ConfigurationError) as raised:
        protocol_named(name)

    assert hint in str(raised.value)
    assert all(known in str(raised.value) for known in PROTOCOLS)


def test_an_unknown_mode_without_likeness_still_lists_all() -> None:
    """Where nothing is near, the message is a whole sentence and names the modes."""
    with pytest.raises(ConfigurationError, match=r"^there is no mode 'xyzzy'; known modes: aligned, "):
        protocol_named("xyzzy")


@pytest.mark.parametrize(
    ("protocol", "takes_checkpoints", "consistent_cut", "stores_channel_state", "alignment"),
    [
        (AlignedBarriers(), True, True, False, AlignmentType.ALIGNED),
        (UnalignedBarriers(), True, True, True, AlignmentType.UNALIGNED),
        (AlignedWithTimeoutBarriers(), True, True, True, AlignmentType.UNALIGNED),
        (AlignedWithTimeoutBarriers(aligned_timeout_ns=5), True, True, True, AlignmentType.ALIGNED),
        (AtLeastOnceBarriers(), True, False, False, AlignmentType.AT_LEAST_ONCE),
        (NoCheckpoints(), False, True, False, AlignmentType.ALIGNED),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_promises(
    protocol: CheckpointProtocol,
    takes_checkpoints: bool,
    consistent_cut: bool,
    stores_channel_state: bool,
    alignment: AlignmentType,
) -> None:
    """Only at-least-once promises no consistent cut, none takes no checkpoints, unaligned ones store records."""
    assert protocol.takes_checkpoints is takes_checkpoints
    assert protocol.consistent_cut is consistent_cut
    assert protocol.stores_channel_state is stores_channel_state
    assert protocol.options().alignment is alignment
    assert protocol.options().aligned_timeout_ns == (getattr(protocol, "aligned_timeout_ns", 0) or None)


def test_settings_reach_the_protocol() -> None:
    """The timeout goes into the barriers, and both flags into the handlers."""
    timed = protocol_named("aligned-timeout", aligned_timeout_ns=7, checkpoints_after_tasks_finish=False)

    assert timed == AlignedWithTimeoutBarriers(False, 7)
    assert protocol_named("unaligned", checkpoints_after_tasks_finish=False) == UnalignedBarriers(False)
    assert protocol_named("exactly-once", checkpoints_after_tasks_finish=False) == AlignedBarriers(False)


def test_aligned_blocks_the_first_channel_at_its_barrier() -> None:
    """The aligned handler holds a channel back until the other barrier has come, then snapshots and releases."""
    protocol = AlignedBarriers()
    handler = protocol.barrier_handler(2, InputCapture(2))
    barrier = CheckpointBarrier(1, 0, protocol.options())

    first, second = handler.on_barrier(0, barrier, 0), handler.on_barrier(1, barrier, 5)

    assert isinstance(handler, SingleCheckpointHandler)
    assert first == (BlockChannel(0),)
    assert [type(one) for one in second] == [BlockChannel, TriggerSnapshot, ResumeChannels]


def test_at_least_once_never_blocks() -> None:
    """The counting handler says nothing at the first barrier and snapshots at the last."""
    protocol = AtLeastOnceBarriers()
    handler = protocol.barrier_handler(2, InputCapture(2))
    barrier = CheckpointBarrier(1, 0, protocol.options())

    first, second = handler.on_barrier(0, barrier, 0), handler.on_barrier(1, barrier, 5)

    assert isinstance(handler, AtLeastOnceTracker)
    assert first == ()
    assert [type(one) for one in second] == [TriggerSnapshot]


@pytest.mark.parametrize("protocol", ALL, ids=lambda protocol: protocol.name)
def test_each_task_gets_a_handler_of_its_own(protocol: CheckpointProtocol) -> None:
    """Handlers are state: two tasks never share one, and a source gets one without channels."""
    assert protocol.barrier_handler(1, InputCapture(1)) is not protocol.barrier_handler(1, InputCapture(1))
    assert protocol.barrier_handler(0, InputCapture(0)).open_channels == ()
