"""The sinks of the bridge: strict rows, Delta tables, functions of each checkpoint."""
