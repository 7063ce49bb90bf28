"""Tests of what all rooms stand on."""
