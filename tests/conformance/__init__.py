"""Recorded vectors: the engine's answer against the answer that the rule demands."""
