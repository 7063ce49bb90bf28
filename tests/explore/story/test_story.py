"""Stories: what a witness sees, how it is told, and that watching changes nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from engine.cli.cases import load_subject_and_scenario
from engine.explore.cases import FIFO, Case, Setting
from engine.explore.run import Subject, run_case
from engine.explore.story import Story, StoryStep, Witness, tell
from engine.explore.story.story import COMMIT, COMPLETE, SNAPSHOT
from engine.explore.story.teller import story_of
from engine.explore.story.witness import RECORDS, RecordsRead
from engine.faults.fault import parse_fault
from engine.graph.job import Job
from engine.observe.trace_events import Send, TraceEvent
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from tests.explore.failing_job import KEYS, SPLITS, subject
from tests.house.project import ROOT

_SMALL = Case(
    scheduler=FIFO,
    config={"batch_size": 1},
    checkpoints=(1_000,),
    dropped={SPLITS[0]: ((0, 3), (5, 20)), SPLITS[1]: ((1, 20),)},
)
"""Records #3 and #4 of the first split, #0 of the second; one checkpoint, and the last one."""


def _told(case: Case = _SMALL) -> Story:
    return tell(subject(), case)[0]


def _whole(story: Story) -> str:
    """The text of each step, with none left out."""
    return "\n".join(step.text for step in story.steps)


@pytest.mark.parametrize("mode", ["aligned", "unaligned", "at-least-once"])
def test_a_run_that_is_watched_is_the_same_run(mode: str) -> None:
    """The witness changes neither trace nor choices nor files nor output."""
    case = Case(seed="3", config={"mode": mode, "checkpoint_interval": "4us", "batch_size": 3, "cost.record_ns": 700})
    plain: list[TraceEvent] = []
    watched: list[TraceEvent] = []
    witness = Witness(subject())

    one = run_case(subject(), case, instruments=[plain.append])
    other = run_case(witness.subject, case, [witness], instruments=[watched.append])

    assert plain == watched == witness.trace
    assert list(one.choices) == list(other.choices)
    assert one.committed == other.committed


def test_every_value_on_a_channel_is_seen() -> None:
    """The story knows the value of each element on a channel, also of those that wait behind a barrier or are cut."""
    case = Case(
        seed="5", config={"mode": "unaligned", "checkpoint_interval": "3us", "batch_size": 4, "cost.record_ns": 900}
    )
    witness = Witness(subject())
    run_case(witness.subject, case, [witness])

    sends = [one for one in witness.trace if isinstance(one, Send) and one.kind == RECORDS]
    carried = [witness.carried(1, one) for one in sends]

    assert all(one is not None for one in carried)
    assert [one.records for one in sends] == [len(one or ()) for one in carried]


def test_records_are_named_by_their_number_in_the_split() -> None:
    """Records that are left out are not told of, and do not change the numbers of the others."""
    witness = Witness(subject())
    run_case(witness.subject, _SMALL, [witness])

    reads = {(one.split, one.numbers, one.values) for one in witness.entries if isinstance(one, RecordsRead)}

    assert {("sequence-0-of-2", (3,), (3,)), ("sequence-0-of-2", (4,), (4,)), ("sequence-1-of-2", (0,), (20,))} == reads
    assert {SPLITS[0]: 20, SPLITS[1]: 20} == witness.records


def test_the_story_of_a_small_run() -> None:
    """Records, barriers, snapshots, acknowledgements and commits, in the words of the job."""
    text = str(_told())

    for said in (
        "job manager: the job starts",
        "numbers[0]: reads #3 = 3 of sequence-0-of-2, sends (0, 1) to count[1]",
        "sends barrier 1 to count[0], count[1], takes its snapshot of checkpoint 1",
        "takes barrier 1 from numbers[0], blocks numbers[0]",
        "job manager: checkpoint 1 is complete",
        "out[0]: readers of out now see",
        "the job is finished",
    ):
        assert said in text


def _lines_of_counting(fault: str) -> list[str]:
    """A run of the teaching job whose counter takes a record too early, with this fault: what each step says."""
    counting, scenario = load_subject_and_scenario(str(ROOT / "examples/teaching/counting.py"), {})
    case = replace(
        scenario.case("at-least-once", checkpoint_interval=None),
        scheduler=FIFO,
        schedule={1: 2, 2: 2, 4: 1},
        faults=(parse_fault(fault),),
        dropped={"left/sequence-0-of-1": ((1, 2),)},
        checkpoints=(0,),
    )
    return [re.sub(r"^\s*\d+\s+\S+\s+", "", line) for line in tell(counting, case)[0].lines()]


def test_the_barriers_of_an_attempt_end_with_it() -> None:
    """A counter that is restarted between two barriers begins again with channels in which no barrier stands."""
    text = "\n".join(_lines_of_counting("crash:process@before:ack.send#1"))

    before, _, after = text.partition("attempt 1 starts from the beginning")
    assert "takes barrier 1 from right[0]" in before
    assert "takes barrier 1 from left[0]" not in before
    assert "takes ('b', 1) from right[0], sends" in after
    assert "sent after barrier" not in after


@pytest.mark.parametrize("mode", ["aligned", "unaligned", "aligned-timeout"])
def test_no_record_comes_from_behind_a_barrier_in_modes_that_count_once(mode: str) -> None:
    """Where a task takes its snapshot at the first barrier, later barriers have nothing in front of that snapshot."""
    config: dict[str, Setting] = {"mode": mode, "checkpoint_interval": "3us", "batch_size": 2, "cost.record_ns": 900}
    for seed in range(5):
        text = _whole(_told(Case(seed=str(seed), config=config)))
        assert "takes barrier 1 from" in text
        assert "sent after barrier" not in text


def test_an_aborted_checkpoint_has_no_snapshot_to_be_in_front_of() -> None:
    """Once a checkpoint is aborted, the story tells of records behind its barriers as of all other records."""
    standard, scenario = load_subject_and_scenario(str(ROOT / "examples/standard_scenario.py"), {})
    late = {"cost.slow_links.second": 50_000, "checkpoint_timeout_ns": 20_000, "tolerable_failures": 99}
    text = _whole(tell(standard, scenario.case("at-least-once", **late))[0])

    given_up = re.findall(r"checkpoint (\d+) is given up", text)
    assert len(given_up) > 2
    told = [re.search(rf"sent after barrier {one}\b", text) for one in given_up]
    assert any(told)
    for number in given_up:
        after = text.partition(f"checkpoint {number} is given up")[2]
        assert not re.search(rf"sent after barrier {number}\b", after), number


def test_a_record_that_is_counted_twice_is_told_from_its_barrier_to_its_second_reading() -> None:
    """The task takes it from behind one barrier; the snapshot holds it; the restored source reads it again."""
    lines = _lines_of_counting("crash:process@after:manifest.rename#1")

    at = 0
    for said in (
        "count[0]: takes barrier 1 from right[0]",
        "count[0]: takes ('b', 1) from right[0], sent after barrier 1, sends ('b', 1) to out[0]",
        "count[0]: takes barrier 1 from left[0], sends barrier 1 to out[0], takes its snapshot of checkpoint 1",
        "job manager: attempt 1 starts from checkpoint 1",
        "right[0]: reads #1 = 1 (again) of sequence-0-of-1, sends ('b', 1) to count[0]",
        "count[0]: takes ('b', 1) from right[0], sends ('b', 2) to out[0]",
        "count[0]: takes barrier 2 from left[0]",
    ):
        assert said in lines[at:], (said, lines[at:])
        at = lines.index(said, at) + 1


def test_the_story_is_the_same_each_time() -> None:
    """Stories are deterministic, word by word."""
    assert str(_told()) == str(_told())


def test_steps_cover_the_trace_in_order() -> None:
    """Each step tells of events after those of the previous step; the last step tells of the last event."""
    story, _, witness = tell(subject(), _SMALL)

    assert [step.number for step in story.steps] == list(range(1, len(story.steps) + 1))
    assert all(one.end <= other.first and one.first <= other.first for one, other in pairwise(story.steps))
    assert story.steps[-1].end == len(witness.trace)


def test_every_arrow_ends_where_it_was_sent_to() -> None:
    """In a run without failures each element that is sent is taken once."""
    story = _told()

    sent = [arrow.element for step in story.steps for arrow in step.sent]
    taken = [arrow.element for step in story.steps for arrow in step.taken]

    assert sorted(sent) == sorted(taken)
    assert len(set(sent)) == len(sent)


def test_a_long_story_keeps_what_matters() -> None:
    """With a limit, completions and commits stay, and what only passes records on is summed up with a count."""
    story = _told(replace(_SMALL, dropped={}, checkpoints=(5_000,)))
    assert len(story.steps) > 60

    lines = story.lines(limit=12)

    assert len(lines) <= 2 * 12 + 1
    matter = [step for step in story.steps if step.kind in (COMPLETE, COMMIT)]
    assert all(any(step.text in line for line in lines) for step in matter)
    assert any(re.search(r"\d+ further steps, records taken \d+ times", line) for line in lines)


def test_records_keep_their_numbers_when_another_process_goes_on() -> None:
    """A process that resumes in the middle of a split reads on there, and says so."""
    case = Case(
        scheduler=FIFO,
        config={"batch_size": 1},
        checkpoints=(5_000,),
        faults=(parse_fault("crash:process@after:manifest.rename#1"),),
    )
    _, finished, witness = tell(subject(), case)
    assert finished.incarnations == 2

    read = [one.numbers for one in witness.entries if isinstance(one, RecordsRead) and one.split in SPLITS[0]]
    assert sorted({number for numbers in read for number in numbers}) == list(range(20))


def test_the_marked_step_is_kept_and_shown() -> None:
    """The step that tells of an event can be marked; it stays in the shortest story."""
    story = _told(replace(_SMALL, dropped={}))
    middle = story.steps[len(story.steps) // 2]

    marked = story.marked(middle.end - 1)

    assert middle.number == marked.distinguishing
    assert [line for line in marked.lines(limit=3) if line.startswith("→")] == [
        line for line in marked.lines(limit=1_000) if line.startswith("→")
    ]


def test_nothing_is_marked_behind_the_end() -> None:
    """An event that the run never came to belongs to no step."""
    assert _told().marked(10**6).distinguishing is None


def test_what_is_blocked_and_let_go_at_once_is_not_mentioned() -> None:
    """The last barrier of an alignment does not hold up any record."""
    step = StoryStep(1, 0, ["count[0]"], SNAPSHOT, [], 0, 1)
    for verb, what in (("blocks", "a[1]"), ("takes its snapshot of", "checkpoint 1"), ("unblocks", "a[0]")):
        step.say(verb, what)
    step.say("unblocks", "a[1]")

    assert step.text == "count[0]: takes its snapshot of checkpoint 1, unblocks a[0]"
    assert not step.blocks


def test_chained_operators_and_side_sinks_are_heard() -> None:
    """A record is followed down a chain, into a sink that shows it at once."""

    def build(_parallelism: int | None) -> Job:
        job = Job("chain")
        numbers = job.source(SequenceSource(0, 2), name="numbers").map(lambda one: one * 10, name="tens")
        numbers.collect(CollectedResults(transactional=False), name="out")
        return job

    witness = Witness(Subject(build))
    run_case(witness.subject, Case(scheduler=FIFO, config={"batch_size": 1}), [witness])
    text = str(story_of(witness))

    assert "reads #1 = 1 of sequence-0-of-1" in text or "reads #1 = 1" in text
    assert "tens gets 1" in text
    assert "out gets 10" in text
    assert "readers of out now see 10" in text


def test_a_fault_is_told_of_where_it_strikes() -> None:
    """A message that is lost leaves no trace of its own; the story says when it went."""
    fault = parse_fault("lose:receive_acknowledge out[0]#1")
    story, finished, _ = tell(subject(), replace(_SMALL, faults=(fault,)).with_config(checkpoint_timeout_ns=5_000))
    texts = [step.text for step in story.steps]

    assert finished.faults == (fault,)
    at = texts.index(f"fault: {fault} strikes")
    assert any("takes its snapshot of checkpoint 1" in text and "out[0]" in text for text in texts[:at])
    assert any("checkpoint 1 is given up" in text for text in texts[at:])


def test_a_death_and_what_follows_is_told() -> None:
    """The story names the victim, the checkpoint that the new attempt restores, and the records read again."""
    text = str(_told(replace(_SMALL, faults=(parse_fault("crash:count[1]@after:snapshot.sync#2"),))))

    for said in (
        "fault: crash:count[1]@after:snapshot.sync#2 strikes",
        "count[1]: dies",
        "job manager: attempt 2 starts from checkpoint 1",
    ):
        assert said in text
    assert text.count("reads #4 = 4") == 2


def test_the_death_of_the_process_is_told() -> None:
    """The next incarnation takes over, and the values of both are known."""
    case = replace(_SMALL, faults=(parse_fault("crash:process@before:ack.send#7"),))
    story, finished, witness = tell(subject(), case)
    text = str(story)

    assert finished.incarnations == 2
    assert "process: dies" in text
    assert "process: another one takes over (incarnation 2)" in text
    sends = [one for one in witness.trace if isinstance(one, Send) and one.kind == RECORDS]
    assert sum(len(values) for values in witness.values.values()) == sum(one.records for one in sends)


def test_a_process_that_comes_back_wider_has_new_tasks() -> None:
    """After a change of parallelism the story speaks of the new subtasks."""

    def build(parallelism: int | None) -> Job:
        job = Job("wider", max_parallelism=8)
        numbers = job.source(SequenceSource(0, 12), name="numbers", parallelism=1)
        counts = numbers.key_by(lambda one: one % 4).reduce(max, name="count", parallelism=parallelism or 1)
        counts.collect(CollectedResults(), name="out", parallelism=1, chain=False)
        return job

    fault = parse_fault("rescale:process@after:source.emit#6=3")
    case = Case(scheduler=FIFO, config={"batch_size": 1}, faults=(fault,), checkpoints=(3_000,))
    story, finished, _ = tell(Subject(build), case)

    assert finished.incarnations == 2
    assert story.actors == ("numbers[0]", "count[0]", "count[1]", "count[2]", "out[0]", "job manager")
    assert any("count[2]: takes" in step.text for step in story.steps)


def test_left_out_records_of_all_keys_are_not_told() -> None:
    """A record that is left out of the input has no part in the story."""
    text = str(_told())

    assert f"#{KEYS + 2} =" not in text
    assert "= 39" not in text
