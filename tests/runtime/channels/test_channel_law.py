"""The law of channel state: no record in flight is lost or counted twice, in any form of barriers and any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings, strategies as st

from engine.elements.events import (
    AlignmentType,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfPartition,
    Watermark,
)
from engine.runtime.config import CostModel
from engine.runtime.kernel import ChoiceRecorder
from tests.runtime.channels.gates import Receiver
from tests.runtime.channels.links import records

TIMEOUT_NS = 700

KINDS = {
    "aligned": CheckpointOptions(),
    "unaligned": CheckpointOptions(AlignmentType.UNALIGNED),
    "timeoutable": CheckpointOptions(aligned_timeout_ns=TIMEOUT_NS),
}

STEPS = st.one_of(
    st.tuples(st.just("records"), st.integers(1, 4)),
    st.tuples(st.just("barrier"), st.integers(0, 5)),
    st.tuples(st.sampled_from(("cancel", "skip", "watermark", "end")), st.just(0)),
)
WEIGHTED_STEPS = st.one_of(STEPS, STEPS.filter(lambda step: step[0] in ("records", "barrier")))


class Job:
    """Senders that each carry out a program, one receiver, and the knowledge of a checkpoint coordinator."""

    def __init__(self, kinds: Sequence[str], programs: Sequence[list[tuple[str, int]]], **settings: Any) -> None:
        self.task = Receiver(len(programs), **settings)
        self.programs = [list(program) for program in programs]
        self.reached = [0] * len(programs)
        self._kinds = kinds
        self._created_ns: dict[int, int] = {}

    def barrier(self, checkpoint_id: int, variant: int) -> CheckpointBarrier:
        """The barrier of a checkpoint in the form that one sender gives it: one that has gone unaligned already sends
        it unaligned, and an edge that nothing may overtake on has it forced."""
        created_ns = self._created_ns.setdefault(checkpoint_id, self.task.kernel.now_ns)
        barrier = CheckpointBarrier(checkpoint_id, created_ns, KINDS[self._kinds[checkpoint_id % len(self._kinds)]])
        if barrier.options.alignment is AlignmentType.UNALIGNED or barrier.options.timeoutable:
            if variant == 0:
                return barrier.as_unaligned()
            if variant == 1:
                return barrier.with_options(replace(barrier.options, alignment=AlignmentType.FORCED_ALIGNED))
        return barrier

    def send(self, number: int) -> bool:
        """The next step of one sender; whether there was one."""
        sender, program = self.task.senders[number], self.programs[number]
        if sender.has_ended:
            return False
        step, argument = program.pop(0) if program else ("end", 0)
        match step:
            case "records":
                first = len(sender.sent)
                sender.put(records(*((number, first + position) for position in range(argument))))
            case "barrier":
                self.reached[number] += 1
                sender.put(self.barrier(self.reached[number], argument))
            case "cancel":
                self.reached[number] += 1
                sender.put(CancelCheckpointMarker(self.reached[number]))
            case "skip":
                self.reached[number] += 1
            case "watermark":
                sender.put(Watermark(1))
            case _:
                sender.put(EndOfPartition())
        return True

    def do(self, choice: int) -> None:
        """Let one sender go on, or the receiver, or the clock."""
        senders = len(self.programs)
        if choice < senders:
            self.send(choice)
        elif choice < senders + 3:
            self.task.read(most=choice - senders + 1)
        else:
            self.task.kernel.run(1)
        self.task.gate.validate()

    def finish(self) -> None:
        """Everybody goes on to the end."""
        going = True
        while going:
            went = [self.send(number) for number in range(len(self.programs))]
            going = any(went)
            self.task.kernel.run(2)
            self.task.read()
        while True:
            self.task.kernel.run()
            if not self.task.read():
                break

    def check_law(self) -> None:
        """For every completed checkpoint, on every channel: what was sent before the barrier is what was processed
        before the snapshot, then the input part, then the output part, in this order."""
        task = self.task
        for checkpoint_id in task.completed:
            for number, sender in enumerate(task.senders):
                if sender.state.is_failed(checkpoint_id):
                    continue
                cut = sender.cuts.get(checkpoint_id, len(sender.sent))
                processed = task.processed[number][: task.snapshots[checkpoint_id][number]]
                inputs = task.inputs(checkpoint_id, number)
                outputs = sender.captured(checkpoint_id)
                assert processed + inputs + outputs == sender.sent[:cut], (checkpoint_id, number)
                if checkpoint_id in sender.cuts:
                    assert sender.state.is_complete(checkpoint_id), (checkpoint_id, number)


@st.composite
def jobs(draw: st.DrawFn, kinds: Sequence[str], **fixed: Any) -> tuple[Job, list[int]]:
    """A job and an order in which its parts go on."""
    senders = draw(st.integers(1, 3))
    job = Job(
        draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4)),
        [draw(st.lists(WEIGHTED_STEPS, max_size=14)) for _ in range(senders)],
        capacity=draw(st.integers(1, 6)),
        output_capacity=draw(st.sampled_from((0, 0, 5))),
        cost=CostModel(link_bytes_per_s=draw(st.sampled_from((None, None, 1_000_000_000)))),
        latencies_ns=[draw(st.sampled_from((0, 0, 300, 900))) for _ in range(senders)],
        seed=draw(st.integers(0, 3)),
        local=draw(st.sampled_from(((), (0,)))),
        **fixed,
    )
    return job, draw(st.lists(st.integers(0, senders + 4), max_size=80))


def carry_out(job: Job, order: list[int]) -> None:
    """Run it and check everything that must hold in the end."""
    for choice in order:
        job.do(choice)
    job.finish()
    task = job.task
    assert task.processed == [sender.sent for sender in task.senders]
    assert not any(channel.sender_blocked or channel.blocked for channel in task.channels)
    assert task.gate.handler.pending_checkpoint_ids == ()
    assert task.state.collecting.keys() <= set(task.completed)
    job.check_law()


@settings(max_examples=300)
@given(jobs(tuple(KINDS)))
def test_every_completed_checkpoint_is_a_consistent_cut(drawn: tuple[Job, list[int]]) -> None:
    """Whatever form barriers have, whatever the links cost, whoever is late, cancels, skips or ends, in any order of
    steps: the law of channel state holds, every record is processed once and in order, and nobody stays blocked."""
    carry_out(*drawn)


@settings(max_examples=150)
@given(jobs(("aligned",), captures=False))
def test_every_aligned_checkpoint_is_a_consistent_cut_without_channel_state(drawn: tuple[Job, list[int]]) -> None:
    """The same law, with nothing in flight: what was sent before the barrier was processed before the snapshot."""
    job, order = drawn
    carry_out(job, order)

    for checkpoint_id in job.task.completed:
        for number, sender in enumerate(job.task.senders):
            assert sender.captured(checkpoint_id) == job.task.inputs(checkpoint_id, number) == []


def test_the_law_is_checked_on_checkpoints_of_all_kinds() -> None:
    """A hundred such runs have all kinds of checkpoints, records on both sides, and all ways of giving up."""
    choices = ChoiceRecorder("all kinds")

    def drawn(bound: int) -> int:
        return choices.draw("test", bound)

    found: set[str] = set()
    for seed in range(100):
        steps = ("records", "records", "records", "barrier", "barrier", "barrier", "watermark", "cancel")
        job = Job(
            [tuple(KINDS)[drawn(3)] for _ in range(4)],
            [[(steps[drawn(8)], 1 + drawn(4)) for _ in range(12)] for _ in range(2)],
            capacity=1 + drawn(6),
            output_capacity=5,
            latencies_ns=[300 * drawn(3), 300 * drawn(3)],
            seed=seed,
        )
        carry_out(job, [drawn(7) for _ in range(80)])
        found |= _what_happened(job)

    assert found == {
        "aligned",
        "unaligned",
        "timed out",
        "input",
        "output",
        "both sides of one channel",
        "aborted",
        "aborted while capturing",
        "lost slot",
    }


def _what_happened(job: Job) -> set[str]:
    task, found = job.task, set()
    for _, checkpoint_id, was_unaligned in (one for one in task.told if one[0] == "snapshot"):
        kind = job.barrier(checkpoint_id, 5).options
        found.add("timed out" if was_unaligned and kind.timeoutable else "unaligned" if was_unaligned else "aligned")
    for checkpoint_id in task.completed:
        for number, sender in enumerate(task.senders):
            inputs, outputs = task.inputs(checkpoint_id, number), sender.captured(checkpoint_id)
            found |= {name for name, part in (("input", inputs), ("output", outputs)) if part}
            if inputs and outputs:
                found.add("both sides of one channel")
    found |= {"aborted" for one in task.told if one[0] == "abort"}
    found |= {"aborted while capturing" for one in task.told if one[0] == "failed"}
    lost = (sender.state.is_failed(one) for sender in task.senders for one in sender.cuts)
    return found | {"lost slot" for one in lost if one}
