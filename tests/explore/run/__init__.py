"""Tests of single cases: the runner, fences, replays."""
