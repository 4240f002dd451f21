"""
rmqha in half a minute: a real broker's store, replicated, through a crash, and compared.

Run it with C{make demo}.  It exits with 1 when anything is not as it should be.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from rmqha.config.settings import StoreSettings  # noqa: E402
from tests.support import compare, golden  # noqa: E402
from tests.support.driver import Driver  # noqa: E402
from tests.support.nodes import Folder, Node, end_all, until  # noqa: E402

VERSION = "5.3.3"
WRITES = 3000
RATE = 600
"""Writes a second."""
COPY_RATE = 2 << 20
"""Bytes a second of the first copy: slow enough to be seen."""

SIZES: dict[str, object] = {
    "mappedFileSizeCommitLog": golden.LOG_FILE_SIZE,
    "mappedFileSizeConsumeQueue": golden.QUEUE_FILE_SIZE,
    "maxHashSlotNum": golden.INDEX_SLOTS,
    "maxIndexNum": golden.INDEX_ENTRIES,
}

STYLES = {"master": "cyan", "slave": "magenta", "writer": "green", "demo": "bold"}


class Demo:
    """
    The story, and what it says.

    @ivar wrong: What is not as it should be.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.begun = time.monotonic()
        self.wrong: list[str] = []
        self.folder = Folder("rmqha-demo-")

    def say(self, who: str, text: str) -> None:
        """
        One line: when, who, what.
        """
        now = time.monotonic() - self.begun
        self.console.print(
            f"[dim]{now:5.1f} s[/dim]  [{STYLES[who]}]{who:<7}[/]{text}", highlight=False
        )

    def expect(self, true: bool, what: str) -> None:
        """
        Note what is wrong, and go on.
        """
        if not true:
            self.wrong.append(what)
            self.console.print(f"         [bold red]wrong: {what}[/]", highlight=False)

    # --- the story ----------------------------------------------------------

    def run(self) -> bool:
        """
        Tell it.

        @return: Whether all was well.
        """
        master = self.start_master()
        self.expect_no_replica(master)
        slave = self.start_slave(master)
        self.write_through_a_kill(master, slave)
        self.garbage(master, slave)
        end = self.settle(master, slave)
        self.say("demo", "stopping both")
        slave.term()
        self.expect(master.stop() == 0, "the master did not stop cleanly")
        self.report(master, slave, end)
        for node in (master, slave):
            self.expect(not node.complaints(), f"{node.name} logged {node.complaints()}")
        return not self.wrong

    def start_master(self) -> Driver:
        """
        Unpack a store and serve it.
        """
        root = golden.store(VERSION, "store", self.folder.path / "master")
        self.say("demo", f"a store written by a stock RocketMQ {VERSION} broker, unpacked")
        master = Driver(
            self.folder.path, "master", root=root, brokerRole="SYNC_MASTER", **SIZES
        ).start()
        status = master.status()
        self.say(
            "master",
            f"serves bytes {status['minOffset']} to {status['maxOffset']} of its log "
            f"on port {master.ha_port}",
        )
        self.say("master", f"an acknowledged write is {status['syncGuarantee']}")
        return master

    def expect_no_replica(self, master: Driver) -> None:
        """
        SYNC without a replica is refused at once, and says so.
        """
        master.put(3, topic="Demo").wait()
        status = master.history.writes[-1].status
        self.say("writer", f"3 SYNC writes while there is no slave: {status}, at once")
        self.expect(status == "SLAVE_NOT_AVAILABLE", f"without a slave: {status}")

    def start_slave(self, master: Driver) -> Node:
        """
        An empty slave copies everything.
        """
        slave = Node(
            self.folder.path,
            "slave",
            master=master.address,
            haMaxReceiveBytesPerSecond=COPY_RATE,
            **SIZES,
        ).start()
        self.say("slave", f"twistd rmqha --role slave, process {slave.pid}, with an empty store")
        end = master.status()["maxOffset"]
        told = -1

        def there(status: dict[str, Any]) -> bool:
            nonlocal told
            held, state = status["maxOffset"], status["upstream"]["state"]
            if held >= told + end // 5 or state == "in-sync":
                told = held
                self.say("slave", f"{state}: {held} of {end} bytes")
            return bool(state == "in-sync" and held >= end)

        slave.until(there, "the whole log")
        return slave

    def write_through_a_kill(self, master: Driver, slave: Node) -> None:
        """
        SYNC writes go on while the slave is killed and comes back.
        """
        self.say("writer", f"{WRITES} SYNC writes of 1 KiB, {RATE} a second")
        burst = master.put(WRITES, topic="Demo", rate=RATE, concurrency=16)
        until(lambda: len(burst.writes) > WRITES // 3, "a third of the writes")
        slave.kill9()
        self.say("slave", f"kill -9 after {len(burst.writes)} writes")
        until(lambda: burst.writes[-1].status != "PUT_OK", "a write that is not acknowledged")
        self.say("writer", f"now writes are answered {burst.writes[-1].status}")
        slave.launch()
        self.say("slave", f"started again, process {slave.pid}")
        status = slave.until_upstream("in-sync", "catching-up", "bootstrapping")
        found = status["recovery"]
        self.say(
            "slave",
            f"recovered {found['records']} records up to byte {found['end']}, "
            f"compared its log with the master's, follows it again",
        )
        lost = len(burst.writes)
        until(
            lambda: burst.done or any(w.status == "PUT_OK" for w in burst.writes[lost:]),
            "a write that is acknowledged again",
        )
        self.say("writer", "writes are acknowledged again")
        burst.wait(60)

    def garbage(self, master: Driver, slave: Node) -> None:
        """
        Somebody takes the HA port for a web server.
        """
        before = master.status()
        with socket.create_connection(master.address, timeout=10) as web:
            web.sendall(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
            try:
                answer = web.recv(100)
            except ConnectionResetError:
                answer = b""
        self.expect(answer == b"", f"the HA port answered a web client: {answer!r}")
        after = master.status()
        was, now = before["closedConnections"], after["closedConnections"]
        reasons = [reason for reason in now if now[reason] != was.get(reason, 0)]
        self.say(
            "master",
            f"an HTTP GET at the HA port: closed ({', '.join(reasons)}), nothing credited",
        )
        burst = master.put(20, topic="Demo")
        burst.wait()
        fine = all(write.status == "PUT_OK" for write in burst.writes)
        self.expect(fine, f"after the garbage: {[write.status for write in burst.writes]}")
        self.say("writer", "20 more SYNC writes: the slave never noticed")

    def settle(self, master: Driver, slave: Node) -> int:
        """
        Wait until the slave has everything.
        """
        end = int(master.status()["maxOffset"])
        slave.until_synced(end)
        self.say("slave", f"in sync at byte {end}")
        return end

    # --- the end of it ------------------------------------------------------

    def report(self, master: Driver, slave: Node, end: int) -> None:
        """
        Compare both stores and say what was found.
        """
        ours, theirs = self.settings(master), self.settings(slave)
        acked = master.history.acked
        faults = compare.damage(ours, theirs, acked, exact=False)
        for fault in faults:
            self.expect(False, fault)
        self.console.print()
        table = Table(title="Log files, SHA-256 of each side")
        for column in ("file", "bytes", "master", "slave", ""):
            table.add_column(column, justify="right" if column == "bytes" else "left")
        for pair in compare.pairs(ours, theirs, end):
            verdict = "[green]equal[/]" if pair.same else "[bold red]DIFFERENT[/]"
            table.add_row(pair.name, str(pair.size), pair.master[:16], pair.slave[:16], verdict)
            self.expect(pair.same, f"{pair.name} differs")
        self.console.print(table)
        table = Table(title="What became of it", show_header=False)
        table.add_column("what")
        table.add_column("value")
        for name, settings in (("master", ours), ("slave", theirs)):
            log = compare.open_log(settings)
            table.add_row(f"{name}: log", f"bytes {log.min_offset} to {log.end}")
        for status, count in sorted(master.history.statuses.items()):
            table.add_row(f"writes answered {status}", str(count))
        kept = "all" if not faults else "see above"
        table.add_row("acknowledged writes found on the slave", f"{kept} of {len(acked)}")
        for node in (master, slave):
            verdict = self.verify(node)
            table.add_row(f"{node.name}: rmqha verify --deep", verdict or "[green]clean[/]")
            self.expect(not verdict, f"{node.name}: {verdict}")
        self.console.print(table)

    def settings(self, node: Node) -> StoreSettings:
        """
        What a comparison needs to know of a store.
        """
        return compare.settings_of(
            node.root,
            file_size=golden.LOG_FILE_SIZE,
            queue_file_size=golden.QUEUE_FILE_SIZE,
            index_slots=golden.INDEX_SLOTS,
            index_entries=golden.INDEX_ENTRIES,
        )

    def verify(self, node: Node) -> str:
        """
        C{rmqha verify --deep}, as anybody would run it.

        @return: What it found; empty if nothing.
        """
        rmqha = Path(sys.executable).parent / "rmqha"
        done = subprocess.run(
            [
                sys.executable,
                str(rmqha),
                "verify",
                "--deep",
                "--conf",
                str(node.conf),
                str(node.root),
            ],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        return "" if done.returncode == 0 else f"exit code {done.returncode}\n{done.stdout}"


def main() -> int:
    """
    Run the demo.

    @return: The exit code.
    """
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 100
    console = Console(width=wide, soft_wrap=False)
    demo = Demo(console)
    try:
        well = demo.run()
    except AssertionError as error:
        console.print(f"[bold red]failed:[/] {error}", highlight=False, markup=True)
        well = False
    except KeyboardInterrupt:
        console.print("interrupted")
        well = False
    finally:
        end_all()
        demo.folder.remove()
    took = time.monotonic() - demo.begun
    if well:
        console.print(f"[bold green]Everything is equal.[/] {took:.0f} s")
    else:
        console.print(f"[bold red]Not everything is as it should be.[/] {took:.0f} s")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
