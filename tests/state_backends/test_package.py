"""The package as others import it."""

from __future__ import annotations

import pytest

import state_backends
from tests.hash_seeds import printed


def test_every_public_name_is_there() -> None:
    """Each exported name can be loaded, and nothing else pretends to be one."""
    for name in state_backends.__all__:
        assert getattr(state_backends, name).__name__ == name or callable(getattr(state_backends, name))
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        state_backends.Nonsense

    assert dir(state_backends) == state_backends.__all__


def test_importing_the_package_loads_no_module_of_it() -> None:
    """Names are loaded on first use, so that importing the package is free."""
    code = "import sys, state_backends; print([name for name in sys.modules if name.startswith('state_backends.')])"

    assert printed(code, "0") == "[]\n"
