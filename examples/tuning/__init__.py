"""What the settings of checkpoints do, each lesson a command, a table and a plot. The page ``docs/tuning.md`` has them.

``lesson`` is what they share. ``unaligned`` and ``intervals`` are questions at the size of a study.
"""
