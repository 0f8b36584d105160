#!/usr/bin/python3
"""Reads metrics with the parser of Prometheus' client library, which refuses what OpenMetrics does not allow."""
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

families = list(text_string_to_metric_families(sys.stdin.read()))
samples = sum(len(family.samples) for family in families)
if not samples:
    sys.exit("no metrics")
print(f"{len(families)} families, {samples} samples")
