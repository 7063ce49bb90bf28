"""Asynchronous requests to services outside of the job."""
