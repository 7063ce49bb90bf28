"""Files as sources and sinks. The rooms, from the bottom up; each may import those above it in this list:

* ``formats``: how records stand in files; ``writing``: files that become visible all at once, buckets, rolling
* ``compaction``: small files made into large ones; ``sinks``: the exactly-once file sink, in one operator or in several
* ``bucketing``: the bucketing sink; ``reading``: files as sources
"""
