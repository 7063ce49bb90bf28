"""Tests of single cases: the runner, the self-check, fences, replays."""
