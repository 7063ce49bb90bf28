"""Record acking (Storm): every source record is followed until all that came of it has been handled, or it is sent
again. No barriers, no checkpoints; at least once.

Pure machines: what they take and give are values; ids, time and messages are the runtime's to bring.
"""
