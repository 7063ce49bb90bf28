"""State that earlier versions have written still restores: see :mod:`tests.compatibility.archive`."""
