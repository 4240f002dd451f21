"""A pair that changes its roles by C{rmqha switchover}, which is killed at each step."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from lab.harness.evidence import evidence
from lab.harness.nodes import NameServer, Node, until
from lab.harness.remote import Remote, commit, progress, send
from rmqha.store.offline.client_ledger import Acknowledged
from tests.faults.harness import BRISK, FaultTestCase
from tests.support.commands import BIN, RMQHA, rmqha

#: What an operator has on both machines: stop a node, start it in a role, promote it.
SCRIPT = """\
cd {folder}
exec 9>site.lock
flock 9
stop() {{
    for role in master slave; do
        test -e $1-$role.pid && kill $(cat $1-$role.pid)
        while test -e $1-$role.pid; do sleep 0.05; done
    done
}}
start() {{
    test -e $1-$2.pid || {python} {bin}/twistd --pidfile=$1-$2.pid --logfile=$1.log \\
        rmqha --role $2 --conf $1-$2.conf 9>&-
}}
case $1 in
stop) stop $2 ;;
master) start $2 master ;;
slave) start $2 slave ;;
promote)
    test -e $2-master.pid && exit 0
    stop $2
    {python} {bin}/rmqha promote $2/store --conf $2-master.conf --tables $3/store \\
        ${{4:+--epoch $4}} || exit
    start $2 master ;;
restore)
    test -e $2-master.pid && exit 0
    {python} {bin}/rmqha promote $2/store --conf $2-master.conf --unverified \\
        ${{3:+--epoch $3}} || exit
    start $2 master ;;
esac
"""

#: What goes on behind a connection that broke: stops the slave first or last, and promotes it late.
LATE = """\
cd {folder}
test $1 = first && sh site.sh stop $2
until test -e go; do test -e site.sh || exit; sleep 0.05; done
sh site.sh promote $2 $3 $4
echo "ended with $?"
"""

#: After which line the command is killed, and what comes of it: on, or back.
BACK = ("refuses writes", "site.sh stop")
ON = (
    "refuses writes",
    "has the log up to",
    "site.sh stop",
    "there is no master now",
    "site.sh promote",
    "writes were refused for",
    "site.sh slave",
)


class RoamingProducer:
    """Sends one message after the other to whichever node takes it."""

    def __init__(self, *ports: int) -> None:
        self.ports = ports
        self.next = 0
        self.acked: set[str] = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(0.02):
            for port in self.ports:
                try:
                    with Remote(port) as client:
                        while not self._ending.is_set() and self._sent(client):
                            self._ending.wait(0.002)
                except OSError:
                    continue

    def _sent(self, client: Remote) -> bool:
        text = f"{self.next:06d}"
        self.next += 1
        answer = client.ask(send("Orders", text.encode()), 5.0)
        if answer.code == 0:
            self.acked.add(text)
        return answer.code == 0

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(30)


class SwitchoverTests(FaultTestCase):
    """Two nodes that are started and stopped by scripts."""

    def setUp(self) -> None:
        super().setUp()
        self.nodes = {name: self.made(name) for name in "ab"}
        for name, other in ("ab", "ba"):
            self.configure(self.nodes[name], self.nodes[other])
        self.late_log = self.folder / "late.log"
        self.script = self.folder / "site.sh"
        text = SCRIPT.format(folder=self.folder, python=sys.executable, bin=BIN)
        self.script.write_text(text, encoding="utf-8")
        self.addCleanup(self.end_daemons)
        self.master, self.slave = "a", "b"
        self.site("master", "a")
        self.site("slave", "b")
        self.until_paired()
        self.producer = RoamingProducer(*(node.port for node in self.nodes.values()))
        self.addCleanup(self.producer.stop)
        self.committed = 0

    def made(self, name: str) -> Node:
        node = Node(self.folder, "master", name, **{**BRISK, "brokerIP1": "127.0.0.1"})
        node.keys["brokerIP2"] = "127.0.0.1"
        return node

    def configure(self, node: Node, other: Node) -> None:
        roles = {
            "master": {"brokerRole": "SYNC_MASTER", "brokerId": 0},
            "slave": {
                "brokerRole": "SLAVE",
                "brokerId": 1,
                "haMasterAddress": f"127.0.0.1:{other.ha_port}",
                "haMasterClientAddress": f"127.0.0.1:{other.port}",
            },
        }
        for role, keys in roles.items():
            lines = [f"{key}={value}\n" for key, value in {**node.keys, **keys}.items()]
            path = self.folder / f"{node.name}-{role}.conf"
            path.write_text("".join(lines), encoding="utf-8")

    def end_daemons(self) -> None:
        for path in self.folder.glob("*-*.pid"):
            try:
                os.kill(int(path.read_text(encoding="ascii")), signal.SIGKILL)
            except (OSError, ValueError):
                continue

    def site(self, *arguments: str) -> None:
        subprocess.run(["sh", self.script, *arguments], check=True, timeout=60)

    def status(self, name: str) -> dict[str, Any]:
        """A node's status; empty without an answer."""
        try:
            return self.nodes[name].status()
        except OSError:
            return {}

    def until_paired(self) -> None:
        """Wait until the slave is in sync."""

        def paired() -> bool:
            status = self.status(self.slave)
            return (status.get("upstream") or {}).get("state") == "in-sync"

        until(paired, "a pair", tell=lambda: json.dumps(self.status(self.slave)))

    def begun(self, *arguments: str, late: str = "") -> subprocess.Popen[str]:
        """Start the command; its slave may be stopped by a promotion that it does not see."""
        old, new = self.nodes[self.master], self.nodes[self.slave]
        acts = {
            "--stop": f"stop {self.master}",
            "--promote": f"promote {self.slave} {self.master} $RMQHA_EPOCH",
            "--follow": f"slave {self.master}",
            "--restore": f"restore {self.master} $RMQHA_EPOCH",
        }
        commands = {option: f"sh {self.script} {act}" for option, act in acts.items()}
        if late:
            commands["--promote"] = (
                f"setsid sh {self.folder}/late.sh {late} {self.slave} {self.master} $RMQHA_EPOCH "
                f">{self.late_log} 2>&1 </dev/null & sleep 300"
            )
        options = [f"{option}={command}" for option, command in commands.items()]
        return subprocess.Popen(
            [
                *(sys.executable, RMQHA, "switchover"),
                *(f"127.0.0.1:{old.port}", f"127.0.0.1:{new.port}"),
                *options,
                f"--journal={self.folder / 'switchover.json'}",
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=dict(os.environ, PYTHONUNBUFFERED="1"),
        )

    def run_to(self, process: subprocess.Popen[str], line: str = "") -> str:
        """Let the command come to its end or a line, where it is killed: what it said."""
        assert process.stdout is not None
        said = ""
        for text in process.stdout:
            said += text
            if line and line in text:
                process.kill()
                break
        process.stdout.close()
        code = process.wait(60)
        self.assertEqual(-signal.SIGKILL if line else 0, code, said)
        self.tell(said)
        return said

    def commit(self) -> None:
        """A group says how far it is."""
        self.committed += 7
        with Remote(self.nodes[self.master].port) as client:
            self.assertEqual(0, client.ask(commit("Orders", "billing", self.committed)).code)

    def writes_are_taken(self) -> None:
        """Some writes, and no offset is lower."""
        before = len(self.producer.acked)
        until(lambda: len(self.producer.acked) > before + 20, "writes")
        with Remote(self.nodes[self.master].port) as client:
            answer = client.ask(progress("Orders", "billing"))
        self.assertEqual(str(self.committed), answer.ext.get("offset"))

    def test_back(self) -> None:
        """Killed before or while the master is stopped, it goes back when it is told to."""
        for line in BACK:
            self.killed(line)
            self.run_to(self.begun("--back"))
            self.still_whole()
        self.compare()

    def test_on(self) -> None:
        """Killed at any step it goes on when run again: no write is lost, no offset lower."""
        for line in ON:
            self.killed(line)
            self.run_to(self.begun())
            self.master, self.slave = self.slave, self.master
            self.still_whole()
        self.compare()

    def test_late_new_master(self) -> None:
        """What promotes goes on when the command was interrupted, and only ends when the old master
        is one again: the new one does not become a second, whether its slave was stopped before
        that, or after it.
        """
        self.named()
        (self.folder / "late.sh").write_text(LATE.format(folder=self.folder), encoding="utf-8")
        for stopped, refused in (("last", "is not between"), ("first", "is a live master of")):
            self.commit()
            self.interrupted(self.begun(late=stopped))
            back = self.begun("--back")
            if stopped == "last":
                self.run_to(back)
                self.still_whole()
            else:
                self.run_until(back, "now you: start")
            (self.folder / "go").touch()
            until(lambda: "ended with" in self.late_log.read_text(), "the end of what was left")
            until(lambda refused=refused: refused in self.logged(), refused)
            self.site("slave", self.slave)
            if stopped == "first":
                self.run_to(back)
            self.still_whole()
            (self.folder / "go").unlink()
        self.compare()

    def named(self) -> None:
        """Start a name server, and the pair again, which registers there."""
        names = NameServer(self.folder)
        self._processes.append(names.start())
        for name, other in ("ab", "ba"):
            self.nodes[name].keys["namesrvAddr"] = names.client_address
            self.configure(self.nodes[name], self.nodes[other])
            self.site("stop", name)
        self.site("master", self.master)
        self.site("slave", self.slave)
        self.until_paired()

    def logged(self) -> str:
        """What was said where the slave is promoted."""
        log = self.folder / f"{self.slave}.log"
        return self.late_log.read_text(encoding="utf-8") + log.read_text(encoding="utf-8")

    def interrupted(self, process: subprocess.Popen[str]) -> None:
        """Ctrl-C twice while the slave is promoted, and the connection to its machine breaks."""
        self.run_until(process, "late.sh")
        process.send_signal(signal.SIGINT)
        self.run_until(process, "Ctrl-C again leaves it running")
        process.send_signal(signal.SIGINT)
        self.run_until(process, "left running")
        self.assertEqual(130, process.wait(60))
        assert process.stdout is not None
        process.stdout.close()
        until(self.late_log.exists, "what was left")
        pid = int((self.folder / "switchover.json.pid").read_text(encoding="ascii"))
        os.killpg(pid, signal.SIGKILL)

    def run_until(self, process: subprocess.Popen[str], line: str) -> None:
        """Read what the command says up to a line."""
        assert process.stdout is not None
        for text in process.stdout:
            self.tell(text.rstrip())
            if line in text:
                return
        self.fail(f"it ended before {line!r}")

    def killed(self, line: str) -> None:
        """The command says something, and is killed."""
        self.tell(f"--- killed after {line!r}")
        until(lambda: len(self.producer.acked) > 20, "writes")
        self.commit()
        self.run_to(self.begun(), line)

    def still_whole(self) -> None:
        """There is a pair that takes writes, and nothing is under way."""
        self.until_paired()
        self.writes_are_taken()
        self.assertEqual([], list(self.folder.glob("switchover.json*")))

    def compare(self) -> None:
        """Both logs are equal, and have all that was acknowledged."""
        self.producer.stop()
        end = self.status(self.master)["maxOffset"]
        until(lambda: self.status(self.slave)["maxOffset"] == end, "all of it")
        for name in (self.master, self.slave):
            self.site("stop", name)
        roots = [self.folder / name / "store" for name in "ab"]
        rmqha("verify", roots[0], "--against", roots[1], check=True)
        told = [Acknowledged(topic="Orders", body=body) for body in sorted(self.producer.acked)]
        with evidence(self.folder, self._processes, told, roots):
            for root in roots:
                how = ("--topic", "Orders", "--json", "--body")
                found = rmqha("dump", root, *how, check=True).stdout
                held = {self.body_of(json.loads(line)) for line in found.splitlines()}
                self.assertEqual(set(), self.producer.acked - held)

    def body_of(self, record: dict[str, Any]) -> str:
        """A record's body as it was sent."""
        return base64.b64decode(record["body"]).decode()
