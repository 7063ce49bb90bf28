"""Messages and elements that come late, twice or never: their effects on a run."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError
from engine.explore.run import CheckpointTrigger
from engine.faults.fault import Fault, FaultMix, parse_fault
from engine.faults.injector import FaultInjector
from engine.faults.network import NetworkFaults, clogged_between_ns
from engine.faults.opportunities import Struck
from engine.observe.trace_events import CheckpointCompleted, Receive, SnapshotTaken, TaskState
from engine.runtime.execution import Execution
from engine.runtime.faulted import MESSAGES
from engine.runtime.kernel import START_NS, ChoiceRecorder, Kernel
from operators.basic import CollectedResults
from tests.cases import crossed
from tests.faults.disturbed import (
    EXACTLY_ONCE,
    EXPECTED,
    MODES,
    RECORDS,
    VIRTUAL_BOUND_NS,
    Disturbance,
    Disturbed,
    config,
    counting,
    disturbed,
)

US = 1_000
KINDS = ("lose", "duplicate", "late", "partition", "delay", "clog")


@functools.cache
def undisturbed(mode: str) -> Disturbed:
    return disturbed(mode=mode)


def message_faults(mode: str, message: str) -> list[str]:
    """Every visit of that message in a run without faults, struck in every possible way."""
    forms = ("duplicate:{}~30us", "late:{}~9us") if message == "may_finish" else ("lose:{}", "late:{}~30us")
    asked = undisturbed(mode).disturbance.asked.items()
    return [
        form.format(f"{name}#{number}")
        for name, count in asked
        if name.startswith(f"{message} ")
        for number in sorted({1, count})
        for form in forms
    ]


def check_exactly_once(run: Disturbed, why: object) -> None:
    """It has ended in time, each record is counted once, and every checkpoint was a consistent cut."""
    assert run.result.state == "finished", (why, run.result.error)
    assert run.records == EXPECTED, why
    assert run.oracle.held, why
    assert run.took_ns <= VIRTUAL_BOUND_NS, (why, run.took_ns)


@pytest.mark.parametrize("message", [one for one in MESSAGES if one != "notify_stop_complete"])
@pytest.mark.parametrize("mode", MODES)
def test_each_message_goes_astray_once(mode: str, message: str) -> None:
    """Lost, twice or late: the job ends, and each record is counted once."""
    texts = message_faults(mode, message)
    assert texts
    for text in texts:
        run = disturbed(text, mode=mode)

        check_exactly_once(run, text)
        assert run.struck == (parse_fault(text),), text


@crossed(quick=2, mode=[*EXACTLY_ONCE, "at-least-once"], kind=KINDS)
def test_many_at_once_while_tasks_die(mode: str, kind: str) -> None:
    """No record is lost, and none counts twice where that is promised; repeated as exact faults, the run is equal."""
    struck: Counter[str] = Counter()
    for number in range(4):
        kills = [("count[1]", 15 * US + number * 7 * US), ("out[0]", 50 * US)]
        settings: dict[str, Any] = {"mode": mode, "seed": f"{kind}{number}", "kills": kills}
        run = disturbed(mix=FaultMix({kind: 60_000}, most=8), **settings)
        struck.update(fault.kind for fault in run.struck)

        if mode == "at-least-once":
            assert run.result.state == "finished"
            assert run.records >= EXPECTED
        else:
            check_exactly_once(run, run.struck)
        assert disturbed(*run.struck, **settings).trace == run.trace
    assert struck[kind] >= 4


def test_permission_to_finish_is_repeated_until_it_arrives() -> None:
    """It cannot be lost; a partition only delays it until the partition ends."""
    lost = disturbed("lose:may_finish *#1")
    completed = [event for event in lost.trace if isinstance(event, CheckpointCompleted)][-1]
    decided_ns = completed.time_ns - lost.result.started_ns
    cut = disturbed(f"partition:count[0]@{decided_ns}ns~400us")

    assert lost.struck == ()
    check_exactly_once(lost, "lost")
    assert cut.struck
    check_exactly_once(cut, "partition")
    states = [event for event in cut.trace if isinstance(event, TaskState)]
    ended = {event.task: event.time_ns - cut.result.started_ns for event in states if event.state == "finished"}
    assert ended["count[0]"] >= decided_ns + 400 * US > ended["near[0]"]
    disturbance = Disturbance([parse_fault("partition:a[0]@0ns~7us")], FaultMix(), ChoiceRecorder())
    assert disturbance.fates("may_finish", "a[0]") == (7 * US,)
    assert disturbance.fates("trigger_checkpoint", "a[0]") == ()
    assert disturbance.fates("trigger_checkpoint", "a[1]") == (0,)


def test_a_lost_last_notification_is_made_up_for() -> None:
    """No further checkpoint comes that would repair it; permission to finish names the complete checkpoint."""
    for task in ("near[0]", "count[1]", "out[1]"):
        run = disturbed(f"lose:notify_checkpoint_complete {task}#1", checkpoint_interval=None)

        check_exactly_once(run, task)
        assert run.struck, task
        assert run.result.checkpoints.completed == 1


def test_a_lost_trigger_holds_nobody_up_for_ever_without_an_interval() -> None:
    """Once the only checkpoint has timed out, another one frees the channels blocked for it."""
    results, choices = CollectedResults(), ChoiceRecorder()
    disturbance = Disturbance([parse_fault("lose:trigger_checkpoint far[0]#1")], FaultMix(), choices)
    execution = Execution(
        counting(results).plan(), config(checkpoint_interval=None), choices=choices, interference=disturbance
    )
    disturbance.install(execution)
    due_ns = execution.kernel.now_ns + 10 * US
    execution.kernel.schedule(due_ns, "checkpoint_is_due", CheckpointTrigger(execution.manager))

    assert execution.run().state == "finished"
    assert Counter(results.records) == EXPECTED
    assert disturbance.struck


def test_nothing_passes_in_a_partition() -> None:
    """While it lasts no checkpoint completes, for one task neither receives nor sends messages."""
    run = disturbed("partition:count[1]@1us~300us", checkpoint_timeout_ns=20 * US)

    check_exactly_once(run, "partition")
    completed = [event.time_ns - run.result.started_ns for event in run.trace if isinstance(event, CheckpointCompleted)]
    assert completed
    assert min(completed) > 300 * US
    assert any(isinstance(event, SnapshotTaken) and event.task == "count[1]" for event in run.trace)


def test_a_late_trigger_of_an_older_checkpoint_changes_nothing() -> None:
    """It comes after the barrier of a newer one (FLINK-17994): no snapshot is taken for it."""
    run = disturbed("late:trigger_checkpoint near[0]#1~100us", checkpoint_timeout_ns=12 * US)

    check_exactly_once(run, "late trigger")
    taken = [event.checkpoint_id for event in run.trace if isinstance(event, SnapshotTaken) and event.task == "near[0]"]
    assert taken == sorted(taken)
    assert 1 not in taken


# -- elements -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", EXACTLY_ONCE)
def test_a_delayed_element_delays_what_is_behind_it(mode: str) -> None:
    """A channel stays FIFO, whichever element is delayed; only unaligned barriers overtake, in the queues."""
    channel = "near[0]->count[1]"
    run = disturbed(*(f"delay:{channel} records#{number}~{20 - 3 * number}us" for number in (1, 2, 3, 4)), mode=mode)

    check_exactly_once(run, mode)
    assert len(run.struck) == 4
    received: dict[int, list[int]] = defaultdict(list)
    for event in run.trace:
        if isinstance(event, Receive) and event.kind == "records":
            received[event.channel].append(event.element)
    assert all(numbers == sorted(numbers) for numbers in received.values())


@pytest.mark.parametrize("kind", ["CheckpointBarrier", "records", "EndOfData"])
@pytest.mark.parametrize("mode", MODES)
def test_each_kind_of_element_is_late_on_each_channel(mode: str, kind: str) -> None:
    """Barriers of one checkpoint meet those of the next, cancel markers come after newer barriers (FLINK-18063)."""
    names = {name for name in undisturbed(mode).disturbance.asked if "->" in name}
    for channel in sorted({name.rpartition(" ")[0] for name in names}):
        run = disturbed(f"delay:{channel} {kind}#1~70us", "lose:receive_acknowledge out[0]#1", mode=mode)

        check_exactly_once(run, channel)


def test_a_cancel_marker_comes_behind_a_newer_barrier() -> None:
    """On one channel, while the barriers of the other are on time (FLINK-18063): it aborts only its own checkpoint."""
    faults = ("lose:trigger_checkpoint far[0]#1", "delay:*->out[0] CancelCheckpointMarker#1~40us")
    run = disturbed(*faults, checkpoint_timeout_ns=12 * US)

    check_exactly_once(run, faults)


def test_clogged_channels_stop_and_come_back_in_orders_of_their_own() -> None:
    """Each stops in the first half of the fault and comes back in the second; neither order is that of the names or
    the other one, and another number gives others."""
    channels = [f"a[{sender}]->b[{receiver}]" for sender in range(4) for receiver in range(4)]
    first, second = (Fault("clog", at_ns=1_000, for_ns=10_000, amount=amount) for amount in (1, 2))

    stops, goes = ({one: clogged_between_ns(first, one)[end] for one in channels} for end in (0, 1))

    assert all(1_000 <= stops[one] < 6_000 < goes[one] <= 11_000 for one in channels)
    orders = [sorted(channels, key=when.__getitem__) for when in (stops, goes)]
    assert len({tuple(order) for order in (channels, *orders)}) == 3
    assert {one: clogged_between_ns(second, one) for one in channels} != {one: (stops[one], goes[one]) for one in goes}


def test_a_channel_goes_on_while_others_are_clogged_already() -> None:
    """At every instant of the fault the channels that have stopped and not come back are delayed. A channel on which no
    element was sent meanwhile was not struck."""
    channels = [f"a[{sender}]->b[{receiver}]" for sender in range(4) for receiver in range(4)]
    clog = Fault("clog", at_ns=1_000, for_ns=10_000, amount=1)
    seen: set[int] = set()
    for now_ns in range(900, 11_200, 100):
        struck = Struck(FaultMix(), ChoiceRecorder())
        faults = NetworkFaults([clog], FaultMix(), struck)
        struck.kernel = Kernel(START_NS + now_ns)
        delays = [faults.element_delay_ns(channel, "Batch") for channel in channels]
        between = [clogged_between_ns(clog, channel) for channel in channels]
        assert delays == [goes_ns - now_ns if stops_ns <= now_ns < goes_ns else 0 for stops_ns, goes_ns in between]
        assert faults.unused == (() if any(delays) else (clog,))
        seen.add(sum(delay > 0 for delay in delays))

    assert len(seen) > 8, "they stop and come back one by one"


def test_nothing_is_received_on_a_clogged_channel() -> None:
    """Elements sent while it stands arrive when it goes again, at once and in order."""
    clog = "clog:near[0]->*@2us~60us=1"
    run = disturbed(clog)

    check_exactly_once(run, clog)
    since, until = clogged_between_ns(parse_fault(clog), "near[0]->count[0]")
    index = next(one.index for one in counting(CollectedResults()).plan().channels if one.sender_vertex == 0)
    times = [
        event.time_ns - run.result.started_ns
        for event in run.trace
        if isinstance(event, Receive) and event.channel == index
    ]
    assert [at for at in times if at <= since]
    assert not [at for at in times if since + US < at < until]
    assert [at for at in times if at >= until]


# -- unsound networks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["drop", "reorder"])
def test_what_breaks_channels_must_be_asked_for(kind: str) -> None:
    """Requested exactly or by chance: the error says why it is refused, and what to do."""
    struck = Struck(FaultMix(), ChoiceRecorder())
    with pytest.raises(ConfigurationError, match="unsound network"):
        NetworkFaults([Fault(kind)], FaultMix(), struck)
    with pytest.raises(ConfigurationError, match="unsound network"):
        NetworkFaults([], FaultMix({kind: 1}, most=1), struck)


def test_a_dropped_batch_is_missing_and_the_oracle_says_so() -> None:
    """The loss shows in the output and in the cut: sent and never received."""
    run = disturbed("drop:near[0]->count[0] records#1", unsound=True)

    missing = EXPECTED - run.records
    assert 0 < sum(missing.values()) <= RECORDS
    assert not run.oracle.held


def test_an_element_may_overtake_in_an_unsound_network() -> None:
    """The second batch is received before the first."""
    faults = ("delay:near[0]->count[0] records#1~30us", "reorder:near[0]->count[0] records#2")
    run = disturbed(*faults, unsound=True, mode="at-least-once")

    numbers = defaultdict(list)
    for event in run.trace:
        if isinstance(event, Receive) and event.kind == "records":
            numbers[event.channel].append(event.element)
    assert len(run.struck) == 2
    assert any(found != sorted(found) for found in numbers.values())


@pytest.mark.parametrize(
    ("faults", "mix", "messages", "elements"),
    [
        ((), FaultMix({"crash": 1_000}, most=1), False, False),
        ((Fault("lose", "* *"),), FaultMix(), True, False),
        ((), FaultMix({"late": 1_000}, most=1), True, False),
        ((Fault("partition", "*", at_ns=5, for_ns=10),), FaultMix(), True, True),
        ((Fault("delay", "* *", for_ns=10),), FaultMix(), False, True),
        ((), FaultMix({"clog": 1_000}, most=1), False, True),
        ((Fault("clog", "*", at_ns=5, for_ns=10, amount=1),), FaultMix(), True, True),
    ],
)
def test_what_may_be_disturbed_is_asked(
    faults: tuple[Fault, ...], mix: FaultMix, messages: bool, elements: bool
) -> None:
    """Messages and elements are asked for when a fault may strike them: exactly, by chance, or for a while."""
    injector = FaultInjector(faults, mix)

    assert (injector.disturbs_messages, injector.disturbs_elements) == (messages, elements)
