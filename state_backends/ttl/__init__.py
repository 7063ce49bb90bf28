"""State that expires, as a layer over the states of any backend (``layer``, ``states``, ``folding_states``), and the
filter that tells from the bytes of a row what has expired (``row_filter``). What a program may say about it is in
:mod:`state_backends.base.ttl_settings`.
"""

from __future__ import annotations

from state_backends.ttl.layer import NowMs
from state_backends.ttl.row_filter import TtlRowFilter
from state_backends.ttl.states import with_ttl

__all__ = [
    "NowMs",
    "TtlRowFilter",
    "with_ttl",
]
