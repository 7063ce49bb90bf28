"""Kafka's sink and source, over a broker that is an object."""
