"""Faults in a run: who dies in the middle of a step, falls silent, is slow, or gets its elements and messages late.

They plug in from above, as the hooks of :mod:`engine.runtime.hook`; a run in which nothing goes wrong has none of them.
What goes wrong is not decided here: that says whoever implements :class:`interference.Interference`.
"""
