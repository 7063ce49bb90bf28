"""Tables in directories: partitions and their commit, staging and overwrite, connectors by options."""
