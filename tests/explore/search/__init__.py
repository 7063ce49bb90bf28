"""Tests of searches: what is drawn, campaigns, tokens, and what searches have found."""
