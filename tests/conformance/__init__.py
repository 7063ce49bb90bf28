"""Recorded vectors: our answer against the answer that the rule demands."""
