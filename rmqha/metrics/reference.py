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
group, gives 8,000 samples, which take some 35 ms of CPU. With 2,000 topics of one queue and 50
groups that read each of them it was 404,000 samples, 77 MB of text and 2.5 s of CPU a scrape on a
busy machine, in which no other request waited longer than 0.15 s; the node took 130 MiB for it.
When the oldest message of a group was stored has to be looked up in the queues in which it has
moved; a scrape makes 500 reads for that, one for each of these queues and one of the log for each
group and topic. Of the groups behind these, and of each that has moved in more queues of one topic,
it tells the age of what they waited for at the scrape before, so it may be too long by the time
between two scrapes, or none where that is not known, as just after a start; a second later they are
looked up too. What arrives together is counted together; ``make bench ARGS=metrics`` says what that
costs writes.

Every sample has these labels:

=============  ==================================================================
``cluster``    ``brokerClusterName``; not on a name server
``node_type``  ``broker`` or ``nameserver``, RocketMQ's words
``node_id``    ``brokerName``; not on a name server
``broker_id``  ``brokerId``: 0 is a master; not on a name server
=============  ==================================================================

A value that is not known, such as the lag in bytes of a slave that has no master, has no sample: 0
would be a claim. Counters begin at 0 with each start of the node, and of a slave's broker also
when its log was repaired. ``process_*`` (memory, CPU, file descriptors, start time) and
``python_gc_*`` are there too, as every Python program has them.
"""

_NATIVE = (
    "By RocketMQ's names",
    """\
These have the names, labels and units of RocketMQ 5.x's own metrics, so that its dashboards work.
They differ in this: a message counts as in when it is stored in a topic, so a delayed one is
counted in SCHEDULE_TOPIC_XXXX and once more in its own topic, and ``message_type`` is the topic's,
not the message's; ``rocketmq_message_size`` and ``rocketmq_half_messages`` are those of all topics
together; ``version`` is a number. Bytes of messages are those in the log, and are summed up every
ten seconds. A group that broadcasts has no lag that a broker could know. Depending on its exporter
a broker of RocketMQ appends units to some names, ``rocketmq_consumer_lag_latency_milliseconds``;
here none are appended. ``rocketmq_topic_create_execution_time`` has no ``is_system``.

Of RocketMQ 5.x's metrics these are not here: ``rocketmq_pop_*``, ``rocketmq_timer_*`` and
``rocketmq_rocksdb_*``, because there is no timer wheel and no RocksDB here; for POP there are
``rmqha_pop_*``.
``rocketmq_delay_message_latency``, because it tells how long messages were meant to wait; for timer
messages there are ``rmqha_timer_messages`` instead of ``rocketmq_timing_messages``, and
``rmqha_timer_late_*``. For delay levels there are ``rmqha_delayed_messages``, and
``rmqha_delayed_late_*`` for how late they were delivered. ``rocketmq_processor_watermark``, because
there are no thread pools with queues of requests: requests wait for the reactor,
``rmqha_reactor_delay_seconds``.
``rocketmq_consumer_queueing_latency``, the age of the oldest message that was not pulled, because
it would have to be looked up in all these queues once more; it is never more than
``rocketmq_consumer_lag_latency``.""",
)

_OWN = ("Of writes and the reactor", "What a broker of RocketMQ does not tell of itself.")

_STATUS = (
    "Of the status",
    """\
These are fields of ``/status`` (:doc:`/status`, *Status*), which says more about each. States
are told as one sample for each, 1 for the one there is.""",
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
        parts.append(_table(families))
    return "\n".join(parts)


def _filled(text: str) -> str:
    return "\n\n".join(textwrap.fill(part, 98) for part in text.split("\n\n"))


def _table(families: Iterable[Family]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 40 14 46", ""]
    lines += ["   * - Metric", "     - Type, unit", "     - Meaning"]
    for family in families:
        meaning = family.text
        if family.labels:
            meaning += f" By {', '.join(f'``{label}``' for label in family.labels)}."
        if isinstance(family, StatusFamily):
            meaning += f" ``{family.field}``."
        lines.append(f"   * - ``{family.name}``")
        lines.append(f"     - {family.type.value}, {_unit(family.unit)}")
        lines.append(f"     - {meaning}")
    return "\n".join(lines) + "\n"


def _unit(unit: str) -> str:
    return "0 or 1" if unit == "1" else unit


if __name__ == "__main__":
    sys.stdout.write(reference())
