"""A set whose master is killed again and again while a client writes; then all is compared.

Where etcd is installed that coordinates three members of ours, and no Java runs; else three of
RocketMQ's controllers a Java broker and two of ours, and a Java client writes.

Run it with C{make demo-failover}; C{ARGS=java} has the second in any case.  It exits with 1 when
anything is not as it should be.
"""

from __future__ import annotations

import sys

from lab.demo_failover.etcd_story import EtcdStory
from lab.demo_failover.java_story import JavaStory
from lab.demo_failover.story import Story
from lab.harness import etcd
from lab.harness.demo_end import demo_console, told
from lab.stock import jars
from lab.stock.controllers import VERSION


def main(arguments: list[str]) -> int:
    """Run the demo."""
    console = demo_console(110)
    if etcd.PROGRAM is not None and arguments != ["java"]:
        console.print(f"Coordinated by etcd ({etcd.PROGRAM}); ARGS=java takes RocketMQ's.")
        story: Story = EtcdStory(console)
        return told(console, story, "Nothing acknowledged is lost.")
    why = "as asked for" if arguments == ["java"] else etcd.MISSING
    console.print(f"Coordinated by RocketMQ's own controllers: {why}.", highlight=False)
    try:
        jars.resolve(VERSION)
    except jars.Missing as error:
        console.print(
            f"The demo runs RocketMQ {VERSION}'s own controllers, broker and client, which Maven "
            f"fetches and a JDK runs: {error}.\nNothing was tried. `make demo` needs neither.",
            highlight=False,
        )
        return 1
    return told(console, JavaStory(console), "Nothing acknowledged is lost.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
