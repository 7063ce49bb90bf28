"""numpy, imported at its first use: it comes with the extra ``columnar`` and is no part of the base install.

What was looked up once stays an attribute of the object here, so that later uses cost what those of a module cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["np"]


class _Numpy:
    """Stands in for the module ``numpy``."""

    def __getattr__(self, name: str) -> Any:
        try:
            import numpy
        except ImportError as error:
            raise ModuleNotFoundError(
                "columns of records need numpy, which is not installed\n"
                "  fix: pip install 'weirstream[columnar]', or use the methods that work record by record",
                name="numpy",
            ) from error
        value = getattr(numpy, name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy as np
else:
    np = _Numpy()
