"""The only room that drives: virtual clock, scheduler, channels, tasks, job manager. One thread."""
