"""Tests of transforms, process functions, reductions and simple sinks."""
