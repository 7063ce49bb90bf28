"""Tests of state with time-to-live."""

from __future__ import annotations
