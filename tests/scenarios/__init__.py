"""Whole jobs with faults, told as stories and compared with their expected output."""
