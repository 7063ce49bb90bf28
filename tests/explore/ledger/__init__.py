"""The effect ledger: ranges, whole runs in every mode, what the page shows."""
