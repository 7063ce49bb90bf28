"""Topics of Kafka: ``kafka_sink`` and ``kafka_source`` are what a job is given, ``publisher`` sends each checkpoint's
records once; ``client`` is all of the client library that they use.
"""

from __future__ import annotations

from operators.log.kafka.kafka_sink import KafkaSink as KafkaSink
from operators.log.kafka.kafka_source import KafkaSource as KafkaSource
