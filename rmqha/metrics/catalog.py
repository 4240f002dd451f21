"""All metrics there are, by what they are about.

Source: docs/guide/metrics.rst.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.metrics import broker_families, node_families
from rmqha.metrics.family import Family, Sample
from rmqha.metrics.port_families import (
    of_certificates,
    of_delays,
    of_name_servers,
    of_ports,
    of_processes,
)
from rmqha.metrics.replication_families import of_masters, of_members, of_slaves
from rmqha.metrics.status_family import Status, StatusFamily
from rmqha.metrics.store_families import of_logs, of_readers, of_scrubs

FROM_STATUS: tuple[StatusFamily, ...] = (
    *of_processes(),
    *of_certificates(),
    *of_masters(),
    *of_members(),
    *of_slaves(),
    *of_logs(),
    *of_scrubs(),
    *of_readers(),
    *of_delays(),
    *of_ports(),
    *of_name_servers(),
)
"""Metrics that C{/status} has too."""

FAMILIES: tuple[Family, ...] = (
    *broker_families.FAMILIES,
    *node_families.FAMILIES,
    *FROM_STATUS,
)
"""All of ours; C{process_*} and C{python_*} are those of every Python process."""


def of_status(status: Status) -> Iterator[Sample]:
    """The samples of a status."""
    for family in FROM_STATUS:
        for labels, value in family.read(status):
            if value is not None:
                yield family, labels, float(value)
