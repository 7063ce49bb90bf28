"""Savepoints in cases: what a user does with them, and what must hold then. Planted mistakes: test_savepoint_rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import ConfigurationError
from engine.explore import Case, parse_fault, parse_savepoint, run_case
from engine.explore.cases import CLAIM_MODES, SAVEPOINT, Savepoint, Setting, case_to_plain, plain_to_case
from engine.explore.cases.savepoint_plans import KINDS
from engine.explore.failures.regression import case_source
from engine.explore.invariants import invariants_for, skipped, sometimes
from engine.explore.run import FinishedCase, Subject
from engine.explore.search import Swarm, Token, parse_token
from engine.explore.search.swarm import ALL, NO_RUN, SHARES, SOME, draw_case
from engine.explore.shrink import concretised, removals, size_of
from engine.explore.story import tell
from engine.graph.job import Job
from engine.runtime.kernel import START_NS
from operators.sources import SequenceSource
from operators.table.staging.staged_sink import StagedFileSink
from tests.explore.invariants.support import JOBS, subject
from tests.explore.subjects import counting_subject

SAVEPOINTS = "/savepoints"
CONFIG: Mapping[str, Setting] = {
    "batch_size": 2, "checkpoint_interval": "3us", "cost.storage_latency_ns": 300, "inline_state_bytes": 0,
}  # fmt: skip


def carried_out(savepoints: str, faults: tuple[str, ...] = (), **settings: Setting) -> FinishedCase:
    """A case of the counting job with these savepoints, in which nothing is violated."""
    case = Case(
        config={**CONFIG, **settings},
        savepoints=tuple(map(parse_savepoint, savepoints.split())),
        faults=tuple(map(parse_fault, faults)),
    )
    invariants = invariants_for()
    finished = run_case(counting_subject(), case, invariants)
    assert finished.violations == []
    assert finished.outcome == "finished"
    assert len(finished.committed["out"]) == 24
    # No rule was left out because of savepoints.
    assert {"V18", "V19"}.isdisjoint(skipped(invariants))
    return finished


def saved(finished: FinishedCase) -> list[str]:
    return list(finished.view.world.checkpoints.walk_files(SAVEPOINTS))


# -- what a user does --------------------------------------------------------------------------------------------------


def test_a_savepoint_is_taken_and_the_job_goes_on() -> None:
    """The job does not delete it: it is there in the end."""
    finished = carried_out("savepoint@8us")
    assert finished.view.job == 1
    assert [path.rpartition("/")[2] for path in saved(finished)].count("_metadata") == 1


def test_a_savepoint_while_checkpoints_are_pending() -> None:
    """The savepoint does not wait for them, and does not disturb them."""
    slow: dict[str, Setting] = {"checkpoint_interval": "1us", "max_concurrent": 3, "cost.storage_latency_ns": 3_000}
    assert saved(carried_out("savepoint@8us", (), **slow))


def test_a_job_that_fails_after_a_savepoint_recovers_from_a_checkpoint() -> None:
    """The savepoint is the newest snapshot, but it belongs to the user: the job passes it over."""
    finished = carried_out("savepoint@8us", faults=("crash:count[0]@9us",), checkpoint_interval="7us")
    _, restore = finished.result.restores
    taken = finished.result.savepoints[0].checkpoint_id
    assert taken is not None
    assert (restore.checkpoint_id or 0) < taken


def test_a_job_stops_with_a_savepoint_and_another_goes_on() -> None:
    """The second job has a storage directory of its own; the rows of both are those of one run."""
    finished = carried_out("stop@8us->no-claim")
    assert (finished.view.job, finished.incarnations) == (2, 2)
    files = finished.view.world.checkpoints
    assert files.exists("/checkpoints/counting")
    assert files.exists("/checkpoints-2/counting")
    assert saved(finished)


def test_a_job_is_drained_and_another_goes_on() -> None:
    """Event time ends with the first job; the counts go on."""
    assert carried_out("drain@8us->no-claim").view.job == 2


def test_a_user_cancels_the_job_once_the_savepoint_is_complete() -> None:
    """The sinks have not heard that it is complete; they commit what it covers when the next job starts."""
    finished = carried_out("cancel@8us->no-claim")
    assert finished.view.job == 2


def test_jobs_follow_each_other() -> None:
    """Each goes on from the savepoint of the one before, with other settings."""
    finished = carried_out("stop@5us->claim,parallelism=3 cancel@9us->legacy,parallelism=1,state_backend=lsm")
    assert (finished.view.job, finished.incarnations) == (3, 3)
    assert finished.view.config.state_backend == "lsm"
    assert finished.view.plan.vertices[1].parallelism == 1


@pytest.mark.parametrize(("mode", "is_left"), [("no-claim", True), ("claim", False), ("legacy", True)])
@pytest.mark.parametrize("form", ["", ":native"])
def test_whose_it_is_decides_what_is_left(mode: str, form: str, is_left: bool) -> None:
    """Only what was claimed is deleted, once it is subsumed."""
    finished = carried_out(f"stop{form}@8us->{mode}", state_backend="lsm", snapshot="incremental")
    assert bool(saved(finished)) == is_left


@pytest.mark.parametrize("backend", ["heap", "lsm", "changelog", "changelog:lsm"])
def test_another_state_backend_and_another_parallelism(backend: str) -> None:
    """A canonical savepoint is read by every state backend, at any parallelism."""
    carried_out(f"stop@8us->no-claim,parallelism=4,state_backend={backend}", state_backend="lsm")


def test_a_native_savepoint_is_refused_by_another_state_backend() -> None:
    """With the reason; the refusal is right, and does not break an invariant."""
    order = parse_savepoint("stop:native@8us->no-claim,state_backend=heap")
    case = Case(config={**CONFIG, "state_backend": "lsm"}, savepoints=(order,))
    finished = run_case(counting_subject(), case, invariants_for())
    assert finished.outcome == "refused"
    assert "was written by state backend lsm" in str(finished.error)
    assert finished.violations == []


def test_a_table_that_is_filled_at_the_end_takes_nothing_more_after_a_drain() -> None:
    """The table is complete. Searches do not drain such a job; the error tells the user what to do."""

    def build(_parallelism: int | None) -> Job:
        job = Job("staged")
        rows = job.source(SequenceSource(0, 24), name="numbers").map(lambda number: {"key": "a", "number": number})
        rows.sink(StagedFileSink("rows", partition_by=("key",)), name="rows")
        return job

    staged = Subject(build, label="staged")
    case = Case(config=CONFIG, savepoints=(parse_savepoint("drain@8us->no-claim"),))
    finished = run_case(staged, case, invariants_for(only=["V6"]))
    assert finished.outcome == "failed"
    assert "was completed when the job was drained" in str(finished.error)
    drawn = [draw_case(Swarm(savepoints=ALL), staged.measure(), str(number)) for number in range(60)]
    assert "drain" not in [order.kind for one in drawn for order in one.savepoints]


# -- and something fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        "crash:process@before:manifest.rename#2",        # while the savepoint is written
        "crash:process@after:manifest.rename#2",         # it is complete, and its user has not been told
        "crash:process@before:notify.send#2",            # its user has been told, and the sinks have not
        "crash:process@after:notify.send#2",
        "crash:process@after:sink.commit#2",             # between stop and restore: the sinks have committed
        "crash:process@before:restore.read#1",           # the second job has done nothing yet
        "crash:process@after:restore.assign-keys#1",     # right after the restore
        "crash:job manager@before:notify.send#2",
        "crash:count[0]@before:restore.recover-and-commit#2",
        "crash:count[0]@before:snapshot.sync#2",
    ],
)  # fmt: skip
def test_crashes_around_a_stop(fault: str) -> None:
    """A crash of any victim at any time: the rows of all jobs together are those of one run."""
    finished = carried_out("stop@8us->no-claim,parallelism=3", faults=(fault,), checkpoint_interval="7us")
    assert [str(one) for one in finished.faults] == [fault]


def test_the_news_that_stops_a_task_is_repeated_until_it_is_heard() -> None:
    """A task that is cut off while the job stops hears of its savepoint once it is back, and of no later one."""
    # Acknowledged by then, but not complete: what comes from count is under way to the sink for another microsecond.
    slow: dict[str, Setting] = {"cost.link_latency_ns": 1_000, "checkpoint_timeout_ns": 100_000}
    faults = ("partition:count[1]@9500ns~50us",)
    finished = carried_out("stop@8us->no-claim", faults, checkpoint_interval="7us", **slow)
    assert finished.view.job == 2
    assert finished.results[0].ended_ns - START_NS == 59_500


def test_a_silent_task_that_is_given_up_has_not_stopped() -> None:
    """A sink falls silent while the job stops and is declared dead: the job has not stopped properly, and restarts."""
    case = Case(
        config={**CONFIG, "failover": "region", "heartbeat_timeout_ns": 9_000, "checkpoint_interval": "7us"},
        savepoints=(parse_savepoint("stop@8us->no-claim"),),
        faults=(parse_fault("pause:out[0]@before:sink.commit#2~50us"),),
    )
    finished = run_case(counting_subject(), case, invariants_for())
    assert (finished.outcome, finished.violations) == ("finished", [])
    assert [str(one) for one in finished.faults] == [str(case.faults[0])]


# -- cases with savepoints are cases -----------------------------------------------------------------------------------

SETTINGS = st.dictionaries(
    st.sampled_from(["parallelism", "state_backend", "snapshot", "local_recovery", "cost.stragglers.a -> b[0]"]),
    st.integers(-9, 9) | st.booleans() | st.none() | st.sampled_from(["lsm", "changelog:lsm"]),
)
ORDERS = st.builds(
    lambda kind, at_ns, native, claim, settings: (
        Savepoint(kind, at_ns, native) if kind == SAVEPOINT else Savepoint(kind, at_ns, native, claim, settings)
    ),
    st.sampled_from(KINDS), st.integers(0, 10**13), st.booleans(), st.sampled_from(CLAIM_MODES), SETTINGS,
)  # fmt: skip


@given(st.lists(ORDERS, max_size=3).map(tuple))
def test_savepoints_survive_text_plain_form_and_token(orders: tuple[Savepoint, ...]) -> None:
    """Whatever a case orders, its text, its plain form and its token say the same."""
    case = Case(savepoints=orders)
    assert tuple(parse_savepoint(str(one)) for one in orders) == orders
    assert plain_to_case(case_to_plain(case)) == case
    token = Token("job.py", {}, "f", case)
    assert parse_token(str(token)) == token


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("stop@8us", "is not of the form"),
        ("savepoint@8us->claim", "is not of the form"),
        ("pause@8us->claim", "there is no 'pause'"),
        ("stop@8us->mine", "there is no claim mode 'mine'"),
        ("stop@soon->claim", "is not a time"),
        ("stop@8us->claim,mode=aligned", "one for all its jobs"),
    ],
)
def test_what_is_no_savepoint_is_refused(text: str, why: str) -> None:
    """With the reason."""
    with pytest.raises(ConfigurationError, match=why):
        parse_savepoint(text)


def test_settings_of_a_later_job_are_checked_first() -> None:
    """Before anything runs, not when the first job has stopped."""
    case = Case(savepoints=(parse_savepoint("stop@8us->claim,speed=3"),))
    with pytest.raises(ConfigurationError, match="no setting 'speed'"):
        run_case(counting_subject(), case)
    with pytest.raises(ConfigurationError, match="needs a mode that takes snapshots"):
        run_case(counting_subject(), Case(config={"mode": "none"}, savepoints=(parse_savepoint("savepoint@8us"),)))


def test_a_case_with_savepoints_is_concretised() -> None:
    """Spelled out it is the same run, with its checkpoints at instants, and savepoints are none of these."""
    order = parse_savepoint("stop@9us->claim")
    case = Case(seed="7", config={**CONFIG, "checkpoint_interval": "5us"}, savepoints=(order,))
    concrete = concretised(run_case(counting_subject(), case))
    assert concrete.scheduler == "fifo"
    assert concrete.savepoints == case.savepoints
    assert concrete.checkpoints is not None
    assert 9_000 not in concrete.checkpoints


def test_savepoints_are_removed_one_by_one_and_written_into_tests() -> None:
    """Each is a part of the case that can be left out, and that a regression test spells out."""
    texts = ("savepoint@8us", "stop@9us->claim,parallelism=3")
    case = Case(savepoints=tuple(map(parse_savepoint, texts)))
    assert [what for what, _ in removals(case, {})] == [f"savepoint {text}" for text in texts]
    assert str(size_of(case, {})) == "0 records, 0 faults, 0 checkpoints, 0 choices, 2 savepoints"
    assert f"        parse_savepoint({texts[1]!r})," in case_source(case)


def test_the_story_tells_of_savepoints() -> None:
    """It tells who takes a savepoint, how the job ends, and where the next job resumes."""
    orders = ("drain@5us->claim,parallelism=3", "cancel@10us->no-claim")
    case = Case(config={**CONFIG, "checkpoint_interval": "7us"}, savepoints=tuple(map(parse_savepoint, orders)))
    story = "\n".join(tell(counting_subject(), case)[0].lines(1_000))
    assert "job manager: triggers savepoint 1 (event time ends, and the job stops with it)" in story
    assert "job manager: savepoint 1 is complete" in story
    assert "user: starts another job from savepoint 1 (claim, parallelism=3; incarnation 2)" in story
    assert "job manager: attempt 1 starts from savepoint 1" in story
    assert "(the job goes on)" in story
    assert "user: cancels the job" in story
    assert "process: dies" not in story


# -- searches ----------------------------------------------------------------------------------------------------------


def test_a_swarm_draws_savepoints_for_some_runs() -> None:
    """About one run in ten; all, or none, where that is asked for. What else a run has does not depend on it."""
    measure = counting_subject().measure()
    seeds = [f"s/{number}" for number in range(400)]
    drawn = {share: [draw_case(Swarm(savepoints=share), measure, seed) for seed in seeds] for share in SHARES}
    some = sum(bool(case.savepoints) for case in drawn[SOME])
    assert 20 < some < 90
    assert all(case.savepoints for case in drawn[ALL])
    assert not any(case.savepoints for case in drawn[NO_RUN])
    for first, second in zip(drawn[SOME], drawn[NO_RUN], strict=True):
        assert (first.config, first.mix, first.faults, first.scheduler) == (
            second.config, second.mix, second.faults, second.scheduler,
        )  # fmt: skip
    kinds = Counter(order.kind for case in drawn[ALL] for order in case.savepoints)
    claims = Counter(order.claim for case in drawn[ALL] for order in case.savepoints if order.ends_job)
    assert set(kinds) == set(KINDS)
    assert set(claims) == set(CLAIM_MODES)
    with pytest.raises(ConfigurationError, match="say some, all, none"):
        Swarm(savepoints="few")


def test_settings_that_are_fixed_stay_fixed_in_every_job() -> None:
    """--set parallelism=2 also sets the second job; a mode without snapshots has no savepoints."""
    measure = counting_subject().measure()
    swarm = Swarm(fixed={"parallelism": 2, "state_backend": "heap"}, savepoints=ALL)
    for number in range(100):
        for order in draw_case(swarm, measure, str(number)).savepoints:
            assert not {"parallelism", "state_backend"} & order.settings.keys()
    assert not draw_case(Swarm(modes=("none",), savepoints=ALL), measure, "1").savepoints


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_a_search_with_savepoints_violates_nothing(job: str) -> None:
    """The healthy engine keeps every promise over stops and restores, and everything happens that there is."""
    seen: Counter[str] = Counter()
    for number in range(80):
        # What must happen is only known of runs without faults.
        swarm = Swarm(savepoints=ALL, kinds=None if number % 2 else ())
        case = draw_case(swarm, subject(job).measure(), f"healthy/{number}")
        invariants = invariants_for()
        finished = run_case(subject(job), case, invariants)
        assert finished.violations == [], (number, list(map(str, case.savepoints)), list(map(str, finished.faults)))
        seen.update(name for name, has in sometimes(invariants).items() if has)
    for name in ("savepoint", "stopped", "drained", "restored from savepoint", "rescaled savepoint", "another backend"):
        assert seen[name], name
    for mode in CLAIM_MODES:
        assert seen[f"started with {mode.replace('-', ' ')}"], mode
