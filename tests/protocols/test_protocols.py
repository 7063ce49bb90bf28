"""Protocols by name: what each promises, which barriers it sends and which handler it gives a task."""

from __future__ import annotations

import pytest

from engine.checkpoint.aligned import AlignedBarrierHandler
from engine.checkpoint.at_least_once import AtLeastOnceTracker
from engine.checkpoint.instructions import BlockChannel, ResumeChannels, TriggerSnapshot
from engine.elements.errors import ConfigurationError
from engine.elements.events import AlignmentType, CheckpointBarrier
from engine.protocols import PROTOCOLS, AlignedBarriers, AtLeastOnceBarriers, NoCheckpoints, protocol_named
from engine.protocols.interface import CheckpointProtocol

ALL = sorted(PROTOCOLS.values(), key=lambda protocol: protocol.name)


@pytest.mark.parametrize("protocol", ALL, ids=lambda protocol: protocol.name)
def test_protocols_are_found_by_their_own_name(protocol: CheckpointProtocol) -> None:
    """The name a protocol has is the name under which it is registered."""
    assert protocol_named(protocol.name) is protocol


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
    ("protocol", "takes_checkpoints", "consistent_cut", "alignment"),
    [
        (AlignedBarriers(), True, True, AlignmentType.ALIGNED),
        (AtLeastOnceBarriers(), True, False, AlignmentType.AT_LEAST_ONCE),
        (NoCheckpoints(), False, True, AlignmentType.ALIGNED),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_promises(
    protocol: CheckpointProtocol, takes_checkpoints: bool, consistent_cut: bool, alignment: AlignmentType
) -> None:
    """Aligned promises a consistent cut, at-least-once does not, and none takes no checkpoints."""
    assert protocol.takes_checkpoints is takes_checkpoints
    assert protocol.consistent_cut is consistent_cut
    assert protocol.options().alignment is alignment
    assert not protocol.options().timeoutable


def test_aligned_blocks_the_first_channel_at_its_barrier() -> None:
    """The aligned handler holds a channel back until the other barrier has come, then snapshots and releases."""
    protocol = AlignedBarriers()
    handler = protocol.barrier_handler(2)
    barrier = CheckpointBarrier(1, 0, protocol.options())

    first, second = handler.on_barrier(0, barrier, 0), handler.on_barrier(1, barrier, 5)

    assert isinstance(handler, AlignedBarrierHandler)
    assert first == (BlockChannel(0),)
    assert [type(one) for one in second] == [BlockChannel, TriggerSnapshot, ResumeChannels]


def test_at_least_once_never_blocks() -> None:
    """The counting handler says nothing at the first barrier and snapshots at the last."""
    protocol = AtLeastOnceBarriers()
    handler = protocol.barrier_handler(2)
    barrier = CheckpointBarrier(1, 0, protocol.options())

    first, second = handler.on_barrier(0, barrier, 0), handler.on_barrier(1, barrier, 5)

    assert isinstance(handler, AtLeastOnceTracker)
    assert first == ()
    assert [type(one) for one in second] == [TriggerSnapshot]


@pytest.mark.parametrize("protocol", ALL, ids=lambda protocol: protocol.name)
def test_each_task_gets_a_handler_of_its_own(protocol: CheckpointProtocol) -> None:
    """Handlers are state: two tasks never share one, and a source gets one without channels."""
    assert protocol.barrier_handler(1) is not protocol.barrier_handler(1)
    assert protocol.barrier_handler(0).open_channels == ()
