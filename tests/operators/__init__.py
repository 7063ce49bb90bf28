"""Tests of the operators room: one file per operator, on a harness with the real state backends."""

from __future__ import annotations
