"""Patterns and their automaton."""
