"""Safeguards removed and steps done wrong: one module for each part of the engine, a function for each mistake."""
