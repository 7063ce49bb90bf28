"""The only room that drives: virtual clock, scheduler, channels, tasks, job manager. One thread. From the bottom up:

* ``config``     the settings of a run
* ``kernel``     the virtual clock, events, choices; ``hook``: all that the runtime knows of faults
* ``channels``   the connections between tasks; ``storage``: snapshots on disk, and state restored from them
* ``tasks``      one subtask in one attempt; ``acking``: tracks its records, in that mode
* ``job``        the job manager: attempts, checkpoints, failover, savepoints
* ``faulted``    carries out faults; ``execution``: one run, put together
"""
