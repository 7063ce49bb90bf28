"""Whole jobs with faults, told as stories and compared with what must come out."""
