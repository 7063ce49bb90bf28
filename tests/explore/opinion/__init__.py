"""Tests of the second opinion: the rows that a job commits, computed without the engine."""
