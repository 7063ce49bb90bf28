"""Tests of the example jobs: on a small part of the data without Spark, and once on all of it with Spark."""

from __future__ import annotations
