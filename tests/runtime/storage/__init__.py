"""Claims about the files of a job, and about what comes back from them."""
