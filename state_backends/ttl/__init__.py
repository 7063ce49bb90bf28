"""State that expires: tables over the tables of any backend (``entries``), and the filter that finds expired state in
the bytes of a row (``row_filter``). The settings for programs are in :mod:`state_backends.base.ttl_settings`.
"""

from __future__ import annotations

from state_backends.ttl.entries import NowMs as NowMs, with_ttl as with_ttl
from state_backends.ttl.row_filter import RowFilter as RowFilter, TtlRowFilter as TtlRowFilter
