"""Jobs of a handful of records, each about one thing. They are so small that a check can try *every* schedule and every
crash. The docstring of each file names the command."""
