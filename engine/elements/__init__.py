"""What moves through a job and the contracts its parts agree on: batches, events, operators, sources, errors."""
