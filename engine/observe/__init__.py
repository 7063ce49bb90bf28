"""The observable side of a run: trace events (plain data) and the instruments that read them.

The runtime imports only :mod:`engine.observe.trace_events`; trace writer, metrics and cut oracle are attached from
outside.
"""
