"""Joins of two streams: within a window, within an interval of event time, and of all that ever came."""
