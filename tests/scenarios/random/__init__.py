"""Graphs, loops and faults drawn at random."""
