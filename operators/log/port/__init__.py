"""The port of a log with transactions, and the common part of its implementations. ``transaction_log`` has the requests
and their answers. ``transaction_coordinator`` checks requests, over ``transaction_names`` and ``known_names``.
``log_entries`` interprets entries; ``log_requests`` sends the requests of sinks.
"""

from __future__ import annotations

from operators.log.port.known_names import DEFAULT_ID_EXPIRATION_NS as DEFAULT_ID_EXPIRATION_NS
from operators.log.port.log_entries import (
    decided as decided,
    stable_offset as stable_offset,
    validate_names as validate_names,
    validate_partition as validate_partition,
)
from operators.log.port.log_requests import (
    AT_LEAST_ONCE as AT_LEAST_ONCE,
    DELIVERIES as DELIVERIES,
    EXACTLY_ONCE as EXACTLY_ONCE,
    NONE as NONE,
    PartitionFunction as PartitionFunction,
    Requests as Requests,
)
from operators.log.port.transaction_coordinator import (
    ANSWER_LOST as ANSWER_LOST,
    DEFAULT_MAX_TIMEOUT_NS as DEFAULT_MAX_TIMEOUT_NS,
    DELIVERED as DELIVERED,
    EXPIRE as EXPIRE,
    FATES as FATES,
    FENCE as FENCE,
    LATE_MARKER as LATE_MARKER,
    REQUEST_LOST as REQUEST_LOST,
    TransactionCoordinator as TransactionCoordinator,
)
from operators.log.port.transaction_log import (
    ABORT_MARKER as ABORT_MARKER,
    COMMIT_MARKER as COMMIT_MARKER,
    COMMITTED as COMMITTED,
    DATA as DATA,
    INTERRUPTED as INTERRUPTED,
    LOST as LOST,
    OK as OK,
    OPEN as OPEN,
    PREPARED as PREPARED,
    READ_COMMITTED as READ_COMMITTED,
    READ_UNCOMMITTED as READ_UNCOMMITTED,
    REFUSED as REFUSED,
    REFUSED_AS_FENCED as REFUSED_AS_FENCED,
    REPEATED as REPEATED,
    UNHEARD as UNHEARD,
    Exchange as Exchange,
    InvalidTransactionError as InvalidTransactionError,
    LogCorruptError as LogCorruptError,
    LogEntry as LogEntry,
    LogRecord as LogRecord,
    LogTimeoutError as LogTimeoutError,
    LogTransactionGoneError as LogTransactionGoneError,
    OffsetOutOfRangeError as OffsetOutOfRangeError,
    Producer as Producer,
    ProducerFencedError as ProducerFencedError,
    Request as Request,
    TransactionDescription as TransactionDescription,
    TransactionLog as TransactionLog,
    TransactionLogError as TransactionLogError,
    check_isolation as check_isolation,
)
from operators.log.port.transaction_names import (
    BEGUN as BEGUN,
    ENDED as ENDED,
    FORGOTTEN as FORGOTTEN,
    IS_PREPARED as IS_PREPARED,
    REGISTERED as REGISTERED,
    Change as Change,
    EpochRun as EpochRun,
    Name as Name,
    Outcomes as Outcomes,
)
