"""Drawn cases: the same from the same seed, only as the job and the mode allow, and every kind now and then."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from engine.elements.errors import ConfigurationError
from engine.explore.cases import Case, case_to_plain, run_config
from engine.explore.cases.case import SCHEDULERS
from engine.explore.cases.case_settings import RESTART_DELAY_NS
from engine.explore.run import Measure, measure, run_case
from engine.explore.search import Swarm
from engine.explore.search.swarm import draw_case, possible_kinds
from engine.faults.fault import FAULT_KINDS
from engine.runtime.config import ALIGNED_TIMEOUT
from tests.explore.subjects import chained_subject, counting_subject, failing_subject, order_dependent_subject
from tests.mutants.jobs import logged

SUBJECT = counting_subject()


@cache
def measured() -> Measure:
    return Measure.of(SUBJECT)


@cache
def drawn() -> list[Case]:
    return [draw_case(Swarm(), measured(), f"test/{number}") for number in range(300)]


def test_a_seed_is_a_case() -> None:
    """The same seed, swarm and job: the same case; another seed: another one."""
    measure = Measure.of(counting_subject())
    again = [draw_case(Swarm(), measure, f"test/{number}") for number in range(50)]
    assert again == drawn()[:50]
    assert len({str(case_to_plain(case)) for case in drawn()}) == len(drawn())


def test_pinned() -> None:
    """The meaning of a seed is a promise: if this changes on purpose, SWARM_VERSION grows with it."""
    case = draw_case(Swarm(), measured(), "pinned")
    assert (case.scheduler, case.preemptions, case.config["mode"], case.mix.most) == PINNED


PINNED = ("fifo", 3, "unaligned", 2)


def test_every_case_makes_sense() -> None:
    """The configuration accepts every drawn case."""
    for case in drawn():
        run_config(case)


def test_everything_is_drawn_now_and_then() -> None:
    """Modes, schedulers, backends, parallelisms and every possible kind of fault: none is left out."""
    assert {case.config["mode"] for case in drawn()} == {*Swarm().modes}
    assert {case.scheduler for case in drawn()} == {*SCHEDULERS}
    assert {case.config["state_backend"] for case in drawn()} == {"heap", "lsm", "changelog", "changelog:lsm"}
    assert {case.config.get("parallelism") for case in drawn()} == {None, 1, 2, 3}
    assert {str(case.config["checkpoint_interval"])[-2:] for case in drawn()} == {"ns", "ec"}
    kinds = Counter(kind for case in drawn() for kind in case.mix.per_million)
    assert {*kinds} == {*possible_kinds(Swarm(), measured())}
    assert kinds["crash"] > 75
    assert any(not case.mix.per_million for case in drawn()), "some runs have no faults at all"


def test_nothing_is_drawn_that_the_job_cannot_have() -> None:
    """No rescaling of what names its own parallelism, no faults of a log that is not there, nothing unsound."""
    fixed = Measure.of(order_dependent_subject())
    assert not fixed.scales
    kinds = possible_kinds(Swarm(), fixed)
    assert "rescale" not in kinds
    assert all(FAULT_KINDS[kind].group != "external" and not FAULT_KINDS[kind].unsound for kind in kinds)
    cases = [draw_case(Swarm(), fixed, str(number)) for number in range(100)]
    assert all("parallelism" not in case.config for case in cases)
    with pytest.raises(ConfigurationError, match="can happen to this job"):
        possible_kinds(Swarm(kinds=("rescale",)), fixed)


def test_what_belongs_to_one_mode_is_drawn_only_there() -> None:
    """An alignment timeout only where barriers turn unaligned, overlapping checkpoints only where they may."""
    for case in drawn():
        if case.config["mode"] != ALIGNED_TIMEOUT:
            assert "aligned_timeout_ns" not in case.config
        if case.config["mode"] in ("unaligned", ALIGNED_TIMEOUT):
            assert case.config.get("max_concurrent", 1) == 1


def test_what_is_fixed_is_not_drawn() -> None:
    """Fixed settings are in every case; all else is drawn as without them."""
    fixed = Swarm(fixed={"batch_size": 7, "mode": "unaligned"})
    for number, case in enumerate(drawn()[:100]):
        held = draw_case(fixed, measured(), f"test/{number}")
        assert (held.config["batch_size"], held.config["mode"]) == (7, "unaligned")
        if case.config["mode"] == "unaligned":
            assert {**held.config, "batch_size": 0} == {**case.config, "batch_size": 0}
            assert held.mix == case.mix


def test_faults_of_a_log_are_measured_against_its_requests() -> None:
    """What may befall a few requests is more likely at each of them; what nothing survives is never drawn."""
    measure = Measure.of(logged())
    assert measure.requests["append"] > measure.requests["commit"] > 0
    assert "late-marker" in possible_kinds(Swarm(), measure)
    assert "rewind" not in possible_kinds(Swarm(), measure)
    swarm = Swarm(kinds=("late-marker", "answer-lost"))
    mixes = [draw_case(swarm, measure, str(number)).mix.per_million for number in range(60)]
    both = [mix for mix in mixes if len(mix) == 2]
    assert len(both) > 5
    assert all(mix["late-marker"] >= 4 * mix["answer-lost"] for mix in both)


def test_pauses_outlast_the_patience_of_the_job_manager() -> None:
    """Every fourth run aims one at a task in its work, and its successor is there before it wakes."""
    cases = [draw_case(Swarm(kinds=("pause",)), measured(), str(number)) for number in range(80)]
    aimed = [(fault, case.config["heartbeat_timeout_ns"]) for case in cases for fault in case.faults]
    assert len(aimed) > 10
    for fault, timeout_ns in aimed:
        assert (fault.kind, fault.target[-3:]) == ("pause", "[0]")
        assert isinstance(timeout_ns, int)
        assert fault.for_ns > timeout_ns + RESTART_DELAY_NS


def test_aimed_pauses_are_meant_for_tasks_that_any_parallelism_has() -> None:
    """What is chained to what depends on the parallelism; the first operator of a chain is always somewhere."""
    subject = chained_subject()
    measure = Measure.of(subject)
    assert "text -> rows[0]" in measure.names
    cases = [draw_case(Swarm(kinds=("pause",)), measure, str(number)) for number in range(80)]
    targets = {fault.target for case in cases for fault in case.faults}
    assert targets == {"numbers[0]", "text[0]"}
    for parallelism in (1, 2):
        tasks = subject.plan(parallelism).vertices
        assert targets <= {name for vertex in tasks for name in vertex.names_of(0)}


def test_usual_settings_are_those_of_every_second_run() -> None:
    """They come with the job; searching only around them would miss what other settings show."""
    usual = Swarm(usual={"batch_size": 77, "aligned_timeout_ns": 5})
    cases = [draw_case(usual, measured(), str(number)) for number in range(200)]
    assert 60 < sum(case.config["batch_size"] == 77 for case in cases) < 140
    for case in cases:
        run_config(case)


def test_faults_are_not_drawn_when_none_are_asked_for() -> None:
    """No kinds: no faults, and still every schedule and configuration."""
    cases = [draw_case(Swarm(kinds=()), measured(), str(number)) for number in range(30)]
    assert all(case.mix.per_million == {} for case in cases)


def test_wrong_wishes_are_refused() -> None:
    """Unknown modes and faults, and no mode at all."""
    for wrong in ({"modes": ("fast",)}, {"kinds": ("flood",)}, {"modes": ()}):
        with pytest.raises(ConfigurationError):
            Swarm(**wrong)  # type: ignore[arg-type]


def test_a_job_that_does_not_end_cannot_be_measured() -> None:
    """It is told so, instead of being searched."""
    with pytest.raises(ConfigurationError, match="even when nothing goes wrong"):
        Measure.of(failing_subject())


def test_drawn_cases_without_faults_commit_the_reference() -> None:
    """Under every configuration and schedule they commit the rows of the reference."""
    expected = sorted(SUBJECT.reference().rows["out"])
    for number in range(25):
        finished = run_case(SUBJECT, draw_case(Swarm(kinds=()), measured(), f"plain/{number}"))
        assert finished.violations == []
        assert sorted(finished.committed["out"]) == expected


def test_a_job_that_is_too_long_is_told_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not searched: the error names the events and records, the limit, and what to change."""
    monkeypatch.setattr(measure, "MOST_EVENTS", 300)
    with pytest.raises(ConfigurationError) as refused:
        counting_subject(200).measure()
    told = str(refused.value)
    assert "'counting' is too long to be searched: without faults it has not ended after 500 events" in told
    assert "records read; it must end within 12,000 events" in told
    assert "fix: give the job fewer records, with --param NAME=VALUE" in told


def test_bursts_are_about_messages_of_tracked_records() -> None:
    """Where records are tracked, many runs have several messages in a row that suffer the same, and a death."""
    tracked = [draw_case(Swarm(("acking",)), measured(), str(number)) for number in range(100)]
    bursts = [case for case in tracked if any(fault.target.startswith("acker_") for fault in case.faults)]
    assert len(bursts) > 20
    for case in bursts:
        burst = [fault for fault in case.faults if fault.target.startswith("acker_")]
        assert [fault.number - burst[0].number for fault in burst] == list(range(len(burst)))
        assert len({(fault.kind, fault.target) for fault in burst}) == 1
        assert (case.faults[-1].kind, case.faults[-1].point) == ("crash", "user.process")
    narrow = [draw_case(Swarm(("acking",), kinds=("crash",)), measured(), str(number)) for number in range(100)]
    assert not any("acker_" in fault.target for case in (*drawn(), *narrow) for fault in case.faults)


def test_barriers_that_overtake_leave_room_for_records() -> None:
    """Where a task or link is slow, unaligned checkpoints come with a pause, so that records get through."""
    slow = {"slow_links": 0, "stragglers": 0}
    for case in drawn():
        if case.config["mode"] not in ("unaligned", "aligned-timeout"):
            continue
        record_ns = int(str(case.config["cost.record_ns"]))
        for name, value in case.config.items():
            kind = name.split(".")[1] if name.startswith("cost.") else ""
            if kind in slow:
                needed_ns = int(str(value)) * (record_ns if kind == "stragglers" else 1)
                assert int(str(case.config["min_pause_ns"])) >= 4 * needed_ns
                slow[kind] += needed_ns > 0

    assert min(slow.values()) > 5
