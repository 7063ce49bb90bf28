"""Claims about the files of a job, and about restoring them."""
