"""Claims about the job as a whole: attempts, checkpoints, savepoints, failover, its end."""
