"""Tests of sources in memory and of the operator that reads them."""
