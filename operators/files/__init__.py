"""Files as sources and sinks. The rooms, from the bottom up; each may import those above it in this list:

* ``formats``: formats of records in files; ``writing``: files that become visible all at once, buckets, rolling
* ``compaction``: merges small files into large ones; ``sinks``: the exactly-once file sink, as one operator or several
* ``bucketing``: the bucketing sink; ``reading``: files as sources
"""
