"""The engine with one safeguard taken away, and the search that must notice."""
