"""Tables by options. ``connector`` finds a connector among ``factories``. The built-in one is ``filesystem_connector``,
with the formats of ``table_formats``.
"""

from __future__ import annotations

from operators.table.connectors.connector import (
    describe_options as describe_options,
    register_connector as register_connector,
    register_format as register_format,
    table_sink as table_sink,
    table_source as table_source,
)
