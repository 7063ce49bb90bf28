"""The things that move through a job and the contracts of its parts: batches, events, operators, sources, errors."""
