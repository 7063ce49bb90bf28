"""Fault plans: what dies in a run, and when. A plan is plain data; installing it is its only effect."""

from __future__ import annotations

from engine.faults.fault_plan import FaultPlan as FaultPlan, KillTask as KillTask, parse_kill as parse_kill
