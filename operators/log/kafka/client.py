"""The Kafka connector's use of its client library (``confluent-kafka``, extra ``[kafka]``). The errors mean:

* another producer has the transactional id: :class:`ProducerFencedError`;
* no answer, or an answer that allows a retry: :class:`LogTimeoutError`;
* the topic does not exist, or access is denied: :class:`engine.elements.errors.ConfigurationError`;
* any other error: :class:`TransactionLogError`, after which the task starts again from its checkpoint.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from engine.elements.errors import ConfigurationError, MissingDependencyError
from operators.log.port import LogTimeoutError, ProducerFencedError, TransactionLogError

OURS = frozenset(
    (
        "bootstrap.servers",
        "transactional.id",
        "transaction.timeout.ms",
        "enable.idempotence",
        "group.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "auto.offset.reset",
        "isolation.level",
    )
)
"""Settings of the client that the connector sets itself, because its guarantees depend on them."""

_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
_REFUSED = (
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "_AUTHENTICATION",
    "INVALID_TRANSACTION_TIMEOUT",
    "INVALID_TOPIC_EXCEPTION",
    "_INVALID_ARG",
)
_UNANSWERED = ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "REQUEST_TIMED_OUT")


def client_library() -> Any:
    """The module of the client. Raises :class:`MissingDependencyError` when it is not installed."""
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise MissingDependencyError(
            "reading from or writing to Kafka needs the client: pip install 'weirstream[kafka]'"
        ) from error


def check_settings(servers: object, topic: object, settings: Mapping[str, Any]) -> None:
    """Raises :class:`ConfigurationError` unless they are valid."""
    if not isinstance(servers, str) or not servers:
        raise ConfigurationError(f"bootstrap_servers is {servers!r}; it must be 'host:port', or several with commas")
    if not isinstance(topic, str) or not topic:
        raise ConfigurationError(f"the topic must be named, got {topic!r}")
    taken = sorted(OURS.intersection(settings))
    if taken:
        raise ConfigurationError(
            f"setting {taken[0]!r} of the Kafka client is made by the connector, and its guarantee depends on it: leave"
            " it out, and use the connector's own options"
        )


@contextmanager
def kafka_errors(client: Any, what: str) -> Iterator[None]:
    """Turns errors of the client into ours; ``what`` describes the request."""
    try:
        yield
    except client.KafkaException as problem:
        raise translated(problem.args[0], what) from problem


def translated(error: Any, what: str) -> Exception:
    """Our error for a ``KafkaError``."""
    name, text = error.name(), f"{what}: {error.str()} ({error.name()})"
    if name in _FENCED:
        return ProducerFencedError(f"{text}: another producer has this transactional id")
    if name in _REFUSED:
        return ConfigurationError(f"{text}\n  fix: correct the name or the setting, or ask for access")
    if name in _UNANSWERED or (error.retriable() and not error.fatal() and not error.txn_requires_abort()):
        return LogTimeoutError(f"{text}\n  fix: check that the servers given are right and can be reached")
    return TransactionLogError(text)
