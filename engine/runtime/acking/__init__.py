"""Record acking in a run: ackers, what tracks the tuples of a task, spouts, and channels that outlive tasks.

It plugs in from above, as the parts of :mod:`engine.runtime.tracking`; in other modes a run has none of them.
"""
