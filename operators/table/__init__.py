"""Tables in directories. The rooms, from the bottom up; each may import those above it in this list:

* ``partitions``: writes rows to partitions, compacts their files, and commits partitions
* ``staging``: bounded results that fill or overwrite partitions when their job has succeeded
* ``connectors``: tables by options
"""
