"""What a job is made of: sources, transforms, keyed processing, windows and sinks.

An operator is handed whole batches and its state through a context; it never sees a thread, a wall clock or a
file except through that context. Import from the modules, each of which says what lives there.
"""

from __future__ import annotations
