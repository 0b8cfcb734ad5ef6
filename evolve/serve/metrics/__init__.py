"""Prometheus metrics of runs and of workers, by `prometheus_client` (an extra, imported late)."""
