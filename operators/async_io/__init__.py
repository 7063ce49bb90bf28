"""Asynchronous requests to services outside of the job: ``async_function`` describes a service, ``element_queue``
decides which elements may leave and in which order, ``async_wait_operator`` waits for the answers.
"""

from __future__ import annotations

from operators.async_io.async_function import (
    AsyncContext as AsyncContext,
    AsyncFunction as AsyncFunction,
    AsyncResult as AsyncResult,
    AsyncRetryStrategy as AsyncRetryStrategy,
    AsyncTimeoutError as AsyncTimeoutError,
)
from operators.async_io.async_wait_operator import (
    AsyncWaitOperator as AsyncWaitOperator,
    async_operator as async_operator,
)
