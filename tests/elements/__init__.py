"""Claims about the plain data and the contracts that all rooms share."""
