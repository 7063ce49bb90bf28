"""`--fault`: what goes wrong exactly where it was asked for."""

from __future__ import annotations

from tests.cli.conftest import BRISK, Weir


def test_a_fault_strikes_where_it_was_asked_for(weir: Weir) -> None:
    """The run survives, the report names the fault, and its output is that of an undisturbed run."""
    fault = "crash:sum[0]@before:snapshot.sync#2"
    weir("run", "sums.py", *BRISK, "--out", "calm")
    answer = weir("run", "sums.py", *BRISK, "--out", "struck", "--fault", fault, "--json")

    assert answer.exit_code == 0, answer.stderr
    report = answer.json()
    assert report["run"]["attempts"] == 2
    assert report["run"]["faults"] == [fault]
    assert "struck down before snapshot.sync" in answer.stderr
    assert "never struck" not in answer.stderr
    assert f"--fault '{fault}'" in answer.last_line
    assert weir.rows("struck") == weir.rows("calm")


def test_a_fault_that_never_strikes_is_said_to_have_not(weir: Weir) -> None:
    """A fault that did not happen must not pass for one that was survived."""
    fault = "crash:sum[0]@before:snapshot.sync#2000"
    answer = weir("run", "sums.py", *BRISK, "--fault", fault)

    assert answer.exit_code == 0
    assert f"note: --fault {fault} never struck" in answer.stderr


def test_the_death_of_the_process_is_gone_on_from(weir: Weir) -> None:
    """Dead right behind the rename of a checkpoint's metadata, the run goes on from that checkpoint."""
    weir("run", "sums.py", *BRISK, "--out", "calm")
    died = weir("run", "sums.py", *BRISK, "--storage", "state", "--fault", "crash:process@after:manifest.rename#3")
    assert died.exit_code == 18
    assert "the process of the run was struck down after manifest.rename" in died.stderr
    assert "weir resume" in died.stderr

    resumed = weir("resume", "state")
    assert resumed.exit_code == 0, resumed.stderr
    assert "restored checkpoint 3" in resumed.stderr
    assert weir.rows("state/out") == weir.rows("calm")


def test_a_fault_for_nobody_is_refused_before_anything_is_made(weir: Weir) -> None:
    """An unknown task, point or form is an error that says what there is."""
    for fault, says in (
        ("crash:sums[0]@1us", "there is no task 'sums[0]'"),
        ("crash:sum[0]@before:snapshot.synch", "there is no point 'snapshot.synch'"),
        ("crash sum[0]", "is not of the form"),
    ):
        answer = weir("run", "sums.py", "--out", "made", "--fault", fault)
        assert answer.exit_code == 11
        assert says in answer.stderr
    assert not (weir.directory / "made").exists()
