"""Tests of the second opinion: what a job commits, worked out without the engine."""
