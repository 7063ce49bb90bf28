"""Tests of records whose fields change between two programs."""

from __future__ import annotations
