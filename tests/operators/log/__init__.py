"""Logs with transactions, and the sinks and sources that use them."""
