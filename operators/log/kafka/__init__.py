"""Topics of Kafka. Jobs use ``kafka_sink`` and ``kafka_source``. ``publisher`` sends each checkpoint's records exactly
once; ``client`` holds every use of the client library.
"""

from __future__ import annotations

from operators.log.kafka.kafka_sink import KafkaSink as KafkaSink
from operators.log.kafka.kafka_source import KafkaSource as KafkaSource
