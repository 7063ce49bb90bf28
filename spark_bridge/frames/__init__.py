"""DataFrames as sources of jobs: ``frame_source`` reads one, ``frame_rows`` are its rows in order, and in splits."""

from __future__ import annotations

from spark_bridge.frames.frame_source import FrameSource as FrameSource, spark_source as spark_source
