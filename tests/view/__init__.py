"""Tests of pages: recordings of runs, their data, and the page in a browser."""
