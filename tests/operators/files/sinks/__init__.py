"""Tests of the exactly-once file sink."""
