"""The jobs that are killed: each runs in a process of its own."""
