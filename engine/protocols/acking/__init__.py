"""Record acking (Storm): every source record is followed until all tuples made from it have been handled, or it is sent
again. No barriers, no checkpoints; at least once.

Pure machines: they take and return values; the runtime brings ids, time and messages.
"""
