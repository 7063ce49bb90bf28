"""Tables in directories. The rooms, from the bottom up; each may import those above it in this list:

* ``partitions``: rows go to partitions, which compact their files and are committed
* ``staging``: bounded results that fill or overwrite partitions when their job has succeeded
* ``connectors``: tables by options
"""
