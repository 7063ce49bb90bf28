"""Jobs of a handful of records, each about one thing. They are small enough for *every* schedule and every crash to be
tried: type the command that a file's docstring names."""
