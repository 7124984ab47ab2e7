"""Subscribers of the runtime's events: the metrics that a person or Prometheus reads."""
