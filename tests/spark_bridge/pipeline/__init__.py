"""Jobs in batches: the parts without Spark in one process, with rows in any order, and the whole on Spark."""
