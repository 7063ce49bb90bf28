"""The only room that drives: virtual clock, scheduler, channels, tasks, job manager. One thread. From the bottom up:

* ``config``     how a run is set; ``hook``: all that the rooms above know of faults
* ``kernel``     the virtual clock, events, choices
* ``channels``   what is between tasks; ``storage``: snapshots on disk, and state that comes back from them
* ``tasks``      one subtask in one attempt; ``acking``: what tracks its records, in that mode
* ``job``        the job manager: attempts, checkpoints, failover, savepoints
* ``faulted``    who is disturbed; ``execution``: one run, put together
"""
