"""The verdict on a run: did it keep the promise of its mode?

Three-valued, and never *valid* for want of evidence:

* ``violated``  a completed checkpoint is not the cut that the mode promises. A mode with consistent cuts (aligned
  barriers) promises neither orphans nor lost records; at-least-once promises only that nothing is lost. Or a sink has
  lost output that a completed checkpoint covers, such as a pending file that is gone;
* ``unknown``   the job finished, but nothing was judged although the mode takes checkpoints, or a requested savepoint
                was not taken;
* ``valid``     the job finished and every completed checkpoint was as promised;
* ``failed``    the job did not finish; the error says why. A violation is reported even then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.elements.errors import EXIT_TOOL_ERROR, EXIT_UNKNOWN, EXIT_VALID, EXIT_VIOLATED, JobFailedError, WeirError
from engine.report.units import plural

if TYPE_CHECKING:
    from engine.observe.cut_oracle import CutOracle, CutVerdict
    from engine.protocols.barriers import CheckpointProtocol
    from engine.runtime.execution import ExecutionResult


@dataclass(frozen=True, slots=True)
class Verdict:
    """``name`` is valid, violated, unknown or failed; ``reason`` one sentence; ``exit_code`` the command line's."""

    name: str
    reason: str
    exit_code: int


def judge_run(result: ExecutionResult, oracle: CutOracle, protocol: CheckpointProtocol) -> Verdict:
    """The verdict on one run of a job in the mode of ``protocol``."""
    broken = [verdict for verdict in oracle.verdicts if breaks_promise(verdict, protocol)]
    if broken:
        return Verdict("violated", _violation(broken, protocol), EXIT_VIOLATED)
    if result.losses:
        return Verdict("violated", _loss(result.losses), EXIT_VIOLATED)
    if result.error is not None:
        cause = result.error.__cause__ or result.error
        return Verdict("failed", f"the job failed ({type(cause).__name__})", exit_code_of(result.error))
    if protocol.tracks_records:
        return _judge_acking(result)
    if not protocol.takes_checkpoints:
        reason = f"the job {result.state}; its mode takes no checkpoints and promises nothing"
        return Verdict("valid", reason, EXIT_VALID)
    if not oracle.verdicts:
        reason = f"the job {result.state}, but no checkpoint completed: nothing was judged"
        return Verdict("unknown", reason, EXIT_UNKNOWN)
    missing = [report for report in result.savepoints if report.path is None]
    if missing:
        # A user who resumes from the requested savepoint would not find it.
        of = f" of the {len(result.savepoints)} asked for" if len(result.savepoints) > 1 else " asked for"
        taken = "was not" if len(missing) == 1 else "were not"
        reason = f"the job {result.state}, but {plural(len(missing), 'savepoint')}{of} {taken} taken"
        return Verdict("unknown", reason, EXIT_UNKNOWN)
    return Verdict("valid", _praise(result.state, oracle.verdicts, protocol), EXIT_VALID)


def _judge_acking(result: ExecutionResult) -> Verdict:
    acking = result.acking
    assert acking is not None
    if not acking.tracked and acking.completed:
        reason = f"the job {result.state}; without ackers nothing is tracked, and nothing is promised"
        return Verdict("valid", reason, EXIT_VALID)
    read = plural(result.source_records - result.replayed_records, "record")
    were = "was" if result.replayed_records == 1 else "were"
    again = f"; {plural(result.replayed_records, 'record')} {were} sent again" if result.replayed_records else ""
    state = "; the state that tasks lost when they died is not judged" if result.attempts > 1 else ""
    return Verdict("valid", f"the job {result.state}, and all of {read} are acknowledged{again}{state}", EXIT_VALID)


def breaks_promise(verdict: CutVerdict, protocol: CheckpointProtocol) -> bool:
    """Whether a completed checkpoint is worse than the protocol promises."""
    if protocol.consistent_cut:
        return not verdict.consistent
    return verdict.in_transit > 0


def exit_code_of(error: BaseException) -> int:
    """The exit code of an error: its own if it has one. A job that failed has that of its cause, or 18."""
    if not isinstance(error, WeirError):
        return EXIT_TOOL_ERROR
    if isinstance(error, JobFailedError) and error.exit_code == EXIT_TOOL_ERROR:
        # The cause has no exit code of its own (a task killed on purpose): the code of a failed job says more.
        return JobFailedError.exit_code
    return error.exit_code


def _violation(broken: list[CutVerdict], protocol: CheckpointProtocol) -> str:
    worst = broken[0]
    promise = "a consistent cut" if protocol.consistent_cut else "that no record is lost"
    return (
        f"mode {protocol.name} promises {promise}, but checkpoint {worst.checkpoint_id} of attempt {worst.attempt}"
        f" would count {plural(worst.orphans, 'record')} twice and lose {worst.in_transit}"
        + (f" (and {plural(len(broken) - 1, 'further checkpoint')})" if len(broken) > 1 else "")
    )


def _loss(losses: tuple[str, ...]) -> str:
    more = f" (and {plural(len(losses) - 1, 'further loss', 'further losses')})" if len(losses) > 1 else ""
    return f"records that a completed checkpoint covers are lost: {losses[0]}{more}"


def _praise(state: str, verdicts: list[CutVerdict], protocol: CheckpointProtocol) -> str:
    count = plural(len(verdicts), "completed checkpoint")
    if protocol.consistent_cut:
        return f"the job {state}; {count}, each a consistent cut"
    orphans = plural(sum(verdict.orphans for verdict in verdicts), "record")
    loses, holds = ("loses", "holds") if len(verdicts) == 1 else ("lose", "hold")
    return f"the job {state}; {count} {loses} nothing, and {holds} {orphans} that a restore would count twice"
