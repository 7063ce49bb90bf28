"""Claims about the runtime: clock, channels, tasks, job manager, restarts, determinism."""
