"""Tests of the job graph: fluent API, names, validation, chaining, partitioners and the plan."""
