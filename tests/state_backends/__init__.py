"""Tests of the room state_backends."""

from __future__ import annotations
