"""Tests of the changelog state backend."""

from __future__ import annotations
