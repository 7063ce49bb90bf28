"""Topics of Kafka: ``sink`` and ``source`` are what a job is given, ``publisher`` sends each checkpoint's records once;
``client`` is all of the client library that they use.
"""

from __future__ import annotations

from operators.log.kafka.sink import KafkaSink as KafkaSink
from operators.log.kafka.source import KafkaSource as KafkaSource
