"""The guide's page on metrics, made from the list of them.

Run C{python -m rmqha.metrics.reference > docs/guide/metrics.rst} after a change of a metric; a
test compares the two.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable

from rmqha.metrics import broker_families, node_families
from rmqha.metrics.catalog import FROM_STATUS
from rmqha.metrics.family import Family
from rmqha.metrics.status_family import StatusFamily

_INTRO = """\
Metrics
=======

.. Made by ``python -m rmqha.metrics.reference``; edit the families in ``rmqha/metrics`` instead.

``GET /metrics`` on the admin port of every node, whatever its role, answers in Prometheus' text
format. The port is open on the node's own machine only, until ``adminListenAddress`` says otherwise
(:doc:`/status`, *Status*); a Prometheus on another machine has to reach it::

    scrape_configs:
      - job_name: rmqha
        static_configs:
          - targets: ["10.0.0.1:10914", "10.0.0.2:10914", "10.0.0.9:9879"]

``conf/prometheus`` has that file, alert rules, and a dashboard for Grafana.

A scrape does not stop a node: its values are gathered in slices of 2 ms of the reactor's turns, and
their text is made in a thread. A broker with a thousand topics of eight queues, each read by a
group, gives 8,000 samples, which take some 35 ms of CPU; 404,000 samples took 2.5 s and 130 MiB.
The age of a group's oldest message is looked up with at most 500 reads a scrape; that of the groups
behind these is of the scrape before, or none just after a start, until it is looked up a second
later.

Every sample has these labels:

=============  ==================================================================
``cluster``    ``brokerClusterName``; not on a name server
``node_type``  ``broker`` or ``nameserver``, RocketMQ's words
``node_id``    ``brokerName``; not on a name server
``broker_id``  ``brokerId``: 0 is a master; not on a name server
=============  ==================================================================

A value that is not known has no sample: 0 would be a claim. Counters begin at 0 with each start of
the node, and of a slave's broker also when its log was repaired. ``process_*`` and ``python_gc_*``
are there too, as every Python program has them.
"""

_NATIVE = (
    "By RocketMQ's names",
    """\
These have the names, labels and units of RocketMQ 5.x's own metrics, so that its dashboards work.
They differ in this: a delayed message is counted in SCHEDULE_TOPIC_XXXX and once more in its own
topic, and ``message_type`` is the topic's; ``rocketmq_message_size`` and ``rocketmq_half_messages``
are those of all topics together; ``version`` is a number. Bytes of messages are those in the log,
and are summed up every ten seconds. A group that broadcasts has no lag that a broker could know.
No units are appended to names. ``rocketmq_topic_create_execution_time`` has no ``is_system``.

Of RocketMQ 5.x's metrics these are not here: ``rocketmq_pop_*`` (``rmqha_pop_*`` instead),
``rocketmq_timer_*`` and ``rocketmq_rocksdb_*``; ``rocketmq_timing_messages``
(``rmqha_timer_messages``); ``rocketmq_delay_message_latency`` (``rmqha_delayed_messages``,
``rmqha_delayed_late_*`` and ``rmqha_timer_late_*`` for how late they were);
``rocketmq_processor_watermark``, because requests wait for the reactor
(``rmqha_reactor_delay_seconds``); and ``rocketmq_consumer_queueing_latency``, which is never more
than ``rocketmq_consumer_lag_latency``.""",
)

_OWN = ("Of writes and the reactor", "What a broker of RocketMQ does not tell of itself.")

_STATUS = (
    "Of the status",
    """\
These are fields of ``/status``, which are explained there (:doc:`/status`, *Addresses*); a scrape
has a line of help for each. States are told as one sample for each, 1 for the one there is.""",
)


def reference() -> str:
    """The page."""
    parts = [_INTRO]
    for (title, intro), families in (
        (_NATIVE, broker_families.FAMILIES),
        (_OWN, node_families.FAMILIES),
        (_STATUS, FROM_STATUS),
    ):
        parts.append(f"{title}\n{'-' * len(title)}\n\n{_filled(intro)}\n")
        parts.append(_list(families))
    return "\n".join(parts)


def _filled(text: str) -> str:
    return "\n\n".join(textwrap.fill(part, 98) for part in text.split("\n\n"))


def _list(families: Iterable[Family]) -> str:
    lines = []
    for family in families:
        kind = f"{family.type.value}, {_unit(family.unit)}"
        by = f", by {', '.join(f'``{label}``' for label in family.labels)}" if family.labels else ""
        meaning = f"``{family.field}``" if isinstance(family, StatusFamily) else family.text
        lines.append(f"``{family.name}``\n    {kind}{by}: {meaning}")
    return "\n".join(lines) + "\n"


def _unit(unit: str) -> str:
    return "0 or 1" if unit == "1" else unit


if __name__ == "__main__":
    sys.stdout.write(reference())
