"""Once faults of a kind have ended, a job comes to its end within a bound, whatever state they have left."""

from __future__ import annotations

import pytest

from engine.faults.fault import FAULT_KINDS, FaultMix
from engine.observe.trace_events import CheckpointCompleted
from tests.faults.disturbed import EXPECTED, VIRTUAL_BOUND_NS, disturbed

US = 1_000
HEALED_NS = 60 * US
KINDS = sorted(
    kind
    for kind, about in FAULT_KINDS.items()
    if about.group in ("channel", "control", "storage", "time") and not about.unsound
)
ONLY_WHEN_RESTORING = ("read-error", "bit-flip", "truncate", "missing", "delete-referenced", "stale-listing")
OF_DEATHS = ("lose-unsynced",)


@pytest.mark.parametrize("mode", ["aligned", "unaligned", "at-least-once"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in OF_DEATHS])
def test_a_job_ends_once_the_world_is_well(kind: str, mode: str) -> None:
    """However many strike until then: after the last one a checkpoint completes, and the job ends."""
    kills = [] if kind in ONLY_WHEN_RESTORING else [("out[0]", 40 * US)]
    chance = FaultMix({kind: 250_000}, most=10**6)

    run = disturbed(mode=mode, mix=chance, heal_after_ns=HEALED_NS, kills=kills, retained=3)

    assert run.result.state == "finished"
    assert run.took_ns <= VIRTUAL_BOUND_NS
    assert run.records >= EXPECTED
    if mode != "at-least-once":
        assert run.records == EXPECTED
        assert run.oracle.held
    last = [event for event in run.trace if isinstance(event, CheckpointCompleted)][-1]
    assert last.time_ns - run.result.started_ns >= 30 * US
    assert run.struck or kind in (*ONLY_WHEN_RESTORING, "skew")


def test_exact_faults_strike_whether_the_world_is_well_or_not() -> None:
    """Healing ends only chance; requested faults still strike."""
    run = disturbed("lose:receive_acknowledge out[0]#2", heal_after_ns=0, mix=FaultMix({"lose": 1_000_000}, most=9))

    assert [str(fault) for fault in run.struck] == ["lose:receive_acknowledge out[0]#2"]
