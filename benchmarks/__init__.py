"""Benchmarks: how fast Weir is beside the plainest program that does the same, measured in one run.

``python -m benchmarks`` runs them; the page beside this file explains the numbers. Nothing here is asserted but that
the results are right: speed depends on the machine, so it is shown and never tested.
"""

from __future__ import annotations
