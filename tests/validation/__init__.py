"""Figures that are known from theory or from publications, reproduced; ``targets`` is the machinery."""
