"""Plans of failure: what dies in a run, and when. A plan is plain data; installing it is its only effect."""

from __future__ import annotations

from engine.faults.fault_plan import FaultPlan, KillTask, parse_kill

__all__ = ["FaultPlan", "KillTask", "parse_kill"]
