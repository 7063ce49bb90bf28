"""The exhaustive check: copies, fingerprints, the search, its reduction and its verdicts."""
