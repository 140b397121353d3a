"""Suites of runs over seeds, and what they come to."""
