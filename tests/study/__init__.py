"""Studies: sweeps, their results files, means and plots."""
