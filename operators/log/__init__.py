"""Partitioned logs. The rooms, from the bottom up; each may import those above it in this list:

* ``port``: an append-only log with transactions as producers see it, and the rules for every implementation
* ``disk``: a log in files; ``memory_transaction_log`` beside it: a log in memory
* ``connectors``: sinks and sources of these two; ``kafka``: those of Kafka
"""
