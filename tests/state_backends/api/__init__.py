"""Tests of timers and operator state."""
