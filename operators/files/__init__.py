"""Files as sources and sinks: formats, splits, recoverable writers, buckets, rolling, compaction."""
