"""Jobs that write logs in memory and on disk, and read them."""
