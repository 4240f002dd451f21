"""Real nodes for tests, demo and bench: C{twistd rmqha} as its own process.

The caller that starts a process keeps its object; whatever is still running when the
interpreter ends is killed by its pid, so a test that fails leaves nothing behind.
Waiting is polling with a deadline, and a deadline that passes says what the node said
last.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from lab.harness.ports import client_port, free_ports

ROOT = Path(__file__).resolve().parent.parent.parent

#: What makes a store small and a pair quick.
SMALL: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 200,
    "maxIndexNum": 4000,
    "haSendHeartbeatInterval": 500,
    "haReconnectBackoffMax": 1000,
    "haProbeSilence": 2000,
    "brokerName": "broker-a",
    # The golden stores are old: at the hour of C{deleteWhen} they would be deleted.
    "fileReservedTime": 876_000,
}

#: Longest wait for anything a healthy node does in well below a second.
PATIENCE = 60.0

#: How often in a row it is waited as long again for what gets on, as on a busy host.
_MOST_TIMES = 5

#: What Linux calls a connection that is there.
ESTABLISHED = "01"

_alive: set[Process] = set()


def until(
    condition: Callable[[], Any],
    what: str,
    timeout: float = PATIENCE,
    *,
    tell: Callable[[], str] = str,
    pause: float = 0.02,
    progress: Callable[[], object] = lambda: None,
) -> Any:
    """Wait for a condition, and give its first true value.

    @param tell: What to say besides C{what} when it does not come true in time.
    @param progress: What changes as long as it gets on: the time begins again then, some times.
    """
    begun = time.monotonic()
    deadline, most = begun + timeout, begun + _MOST_TIMES * timeout
    before = progress()
    while True:
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > deadline:
            reached = progress()
            if reached == before or now > most:
                raise AssertionError(f"not within {now - begun:.0f} s: {what}\n{tell()}")
            before, deadline = reached, now + timeout
        time.sleep(pause)


def stat_of(pid: int) -> str:
    """What the kernel tells of a process in C{/proc/PID/stat}."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")


def ticks(stat: str) -> int:
    """Processor time in such a text; names may have blanks and parentheses.

    Source: proc(5), /proc/pid/stat, fields 14 and 15.
    """
    return sum(map(int, stat.rpartition(")")[2].split()[11:13]))


def status_at(port: int, timeout: float = 5.0) -> dict[str, Any]:
    """What a node says of itself at its admin port; C{OSError} if it does not answer."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=timeout) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


class Folder:
    """A temporary folder that goes away with its owner, or with the process."""

    def __init__(self, prefix: str = "rmqha-") -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._owner = os.getpid()
        atexit.register(self.remove)

    def keep(self) -> None:
        """Keep the folder for inspection, and print where it is."""
        atexit.unregister(self.remove)
        sys.stdout.write(f"kept {self.path}\n")

    def remove(self) -> None:
        if os.getpid() == self._owner:
            shutil.rmtree(self.path, ignore_errors=True)
            atexit.unregister(self.remove)


class Process:
    """One child process that writes its log to a file, over all its starts.

    @cvar popen: How it is started: tests fork what they can, see L{lab.harness.forked}.
    @ivar files: How many files it may open, soft and hard; C{None} is as many as we may.
    """

    popen: type[subprocess.Popen[str]] = subprocess.Popen
    cwd = ROOT
    files: int | None = None

    def __init__(self, name: str, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self.process: subprocess.Popen[str] | None = None

    def spawn(self, command: Sequence[str], *, piped: bool = False, session: bool = False) -> None:
        """Start it; piped we talk to it, and its stdout is no log; in a session of its own a
        terminal's Ctrl-C is not for it.
        """
        if self.running:
            raise RuntimeError(f"{self.name} runs already")
        if self.files is not None:
            command = ["sh", "-c", f'ulimit -n {self.files}; exec "$@"', "sh", *command]
        environment = dict(os.environ, PYTHONUNBUFFERED="1")
        # Nodes are started hundreds of times: what is compiled once is half of a start.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with open(self.log_path, "ab") as log:
            self._logged = log.tell()
            self.process = self.popen(
                command,
                cwd=self.cwd,
                env=environment,
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else log,
                stderr=log,
                text=True,
                start_new_session=session,
            )
        _alive.add(self)

    @property
    def running(self) -> bool:
        """Whether there is a process that has not ended."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    def processor_time(self) -> int:
        """What it has had of the processors, in ticks: on a busy host it starts all the same."""
        return ticks(stat_of(self.pid)) if self.running else 0

    def signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.running:
            os.kill(self.pid, number)

    def freeze(self) -> None:
        """Make it stand still (C{SIGSTOP}), and wait until all its threads do."""
        os.kill(self.pid, signal.SIGSTOP)
        tasks = Path(f"/proc/{self.pid}/task")

        def still() -> bool:
            # The state follows the name, which is in parentheses.
            states = {
                path.read_text(encoding="ascii").rpartition(")")[2].split()[0]
                for path in tasks.glob("*/stat")
            }
            return states == {"T"}

        until(still, f"{self.name} is frozen")

    def thaw(self) -> None:
        """Let a frozen process continue."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end: its exit code, or minus the signal that ended it."""
        assert self.process is not None, "not started"
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} still runs after {timeout:g} s\n{self.tail()}"
            ) from None
        _alive.discard(self)
        return code

    def until_so(self, condition: Callable[[], Any], what: str, timeout: float = PATIENCE) -> None:
        """Wait for a condition, unless it ends before."""

        def look() -> Any:
            if not self.running:
                raise AssertionError(f"{self.name} has ended; wanted: {what}\n{self.tail()}")
            return condition()

        until(look, f"{self.name}: {what}", timeout, tell=self.tail, pause=0.1)

    def until_said(self, text: str, timeout: float = PATIENCE) -> None:
        """Wait until its log has a text, since it was started."""
        self.until_so(
            lambda: text.encode() in self.log_path.read_bytes()[self._logged :],
            f"it says {text!r}",
            timeout,
        )

    def ended(self, timeout: float, well: Collection[int]) -> list[str]:
        """Wait for its end, of which it was told, and say what does not go well.

        @param well: Its exit codes, if it does.
        """
        try:
            code = self.wait(timeout)
        except AssertionError:
            self.kill9()
            return [f"{self.name} did not stop in {timeout:.0f} s and was killed"]
        return [] if code in well else [f"{self.name} ended with {code}"]

    def kill9(self) -> None:
        """End it at once, as a power switch would end everything it did not write."""
        if self.process is not None:
            self.signal(signal.SIGKILL)
            self.wait()

    def term(self, timeout: float = PATIENCE) -> int:
        """Stop it cleanly, and give its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def log(self) -> str:
        if not self.log_path.exists():
            return ""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def tail(self, lines: int = 25) -> str:
        """The last lines of its log, for a failure's text."""
        return f"--- {self.name}\n" + "\n".join(self.log().splitlines()[-lines:])

    def complaints(self) -> list[str]:
        """Lines of exceptions that were not handled."""
        return re.findall(r"(?m)^.*(?:Traceback|Unhandled).*$", self.log())

    def memory(self) -> int:
        """Bytes of anonymous memory (RssAnon): mapped log pages do not count."""
        text = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(re.findall(r"RssAnon:\s+(\d+) kB", text)[0]) * 1024

    @contextmanager
    def no_descriptors(self) -> Iterator[None]:
        """Let it open no file more than it has open now."""
        before = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        # A descriptor's number counts, not how many there are.
        highest = max(map(int, os.listdir(f"/proc/{self.pid}/fd")))
        free = set(range(highest)) - set(map(int, os.listdir(f"/proc/{self.pid}/fd")))
        lowest = min(free, default=highest + 1)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
        try:
            yield
        finally:
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, before)

    def connected_to(self) -> set[int]:
        """The ports that its TCP connections lead to."""
        names = set()
        for descriptor in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(OSError):  # it may be closed by now
                names.add(os.readlink(descriptor))
        found = set()
        for table in ("tcp", "tcp6"):
            text = Path(f"/proc/{self.pid}/net/{table}").read_text(encoding="ascii")
            for row in map(str.split, text.splitlines()[1:]):
                if row[3] == ESTABLISHED and f"socket:[{row[9]}]" in names:
                    found.add(int(row[2].rpartition(":")[2], 16))
        return found

    def open_files(self) -> int:
        """How many file descriptors it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Node(Process):
    """A node of rmqha, with a configuration, to be changed between two starts, and a store of its
    own.

    @ivar arguments: More of the command line.
    @ivar launch_options: More for twistd itself.
    @ivar program: What is run as twistd.
    """

    launch_options: Sequence[str] = ()
    program: Sequence[str] = (str(Path(sys.executable).parent / "twistd"),)

    def __init__(
        self,
        folder: Path,
        role: str,
        name: str = "",
        *,
        root: Path | None = None,
        master: tuple[str, int] | None = None,
        **keys: object,
    ) -> None:
        name = name or role
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(name, folder / f"{name}.log")
        self.folder = folder
        self.role = role
        self.root = folder / name / "store" if root is None else root
        self.port = client_port()
        self.ha_port, self.admin_port = free_ports(2)
        self.keys: dict[str, object] = {
            "brokerRole": "ASYNC_MASTER" if role == "master" else "SLAVE",
            "brokerId": 0 if role == "master" else 1,
            "listenPort": self.port,
            "haListenPort": self.ha_port,
            "adminListenPort": self.admin_port,
            "storePathRootDir": self.root,
            **SMALL,
        }
        if master is not None:
            self.keys["haMasterAddress"] = f"{master[0]}:{master[1]}"
        self.keys.update(keys)
        self.arguments: list[str] = []

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.ha_port

    @property
    def cuts(self) -> list[Path]:
        """The files that keep what was cut off the log; versions of single records are none."""
        folder = self.root / "rmqha" / "quarantine"
        names = re.compile(r"\d{20}-\d{20}(\.\d+)?\.log")
        return sorted(path for path in folder.glob("*.log") if names.fullmatch(path.name))

    @property
    def conf(self) -> Path:
        return self.folder / f"{self.name}.conf"

    def write_conf(self) -> list[str]:
        """Write it, and give the options that name it."""
        lines = [f"{key}={value}" for key, value in self.keys.items()]
        self.conf.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return ["--role", self.role, "--conf", str(self.conf), *self.arguments]

    def launch(self) -> None:
        pidfile = self.folder / f"{self.name}.pid"
        pidfile.unlink(missing_ok=True)
        own = ["-n", "--pidfile", str(pidfile), *self.launch_options]
        command = [*self.program, *own, "rmqha", *self.write_conf()]
        self.spawn([sys.executable, *command])

    def start(self, timeout: float = PATIENCE) -> Self:
        """Start it, and wait until it has recovered."""
        self.launch()
        self.until(lambda status: status["state"] != "recovering", "open", timeout)
        return self

    def status(self) -> dict[str, Any]:
        """C{GET /status}; C{OSError} if it does not answer."""
        return status_at(self.admin_port)

    def health(self, probe: str = "healthz") -> int:
        return self._probed(probe)[0]

    def reasons(self, probe: str = "healthz") -> set[str]:
        """The names of what makes a probe fail; none when it does not."""
        return {reason["name"] for reason in self._probed(probe)[1].get("reasons", ())}

    def _probed(self, probe: str) -> tuple[int, dict[str, Any]]:
        url = f"http://127.0.0.1:{self.admin_port}/{probe}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return int(answer.status), json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def until(
        self, condition: Callable[[dict[str, Any]], Any], what: str, timeout: float = PATIENCE
    ) -> dict[str, Any]:
        """Wait until its status is as wanted, and give that, unless it ends before."""
        last: dict[str, Any] = {}

        def look() -> bool:
            nonlocal last
            if not self.running:
                raise AssertionError(f"{self.name} has ended; wanted: {what}\n{self.tail()}")
            try:
                last = self.status()
            except OSError:
                return False
            return bool(condition(last))

        until(
            look,
            f"{self.name}: {what}",
            timeout,
            tell=lambda: f"last status: {json.dumps(last)}\n{self.tail()}",
            progress=lambda: None if last else self.processor_time(),
        )
        return last

    def until_synced(self, end: int, timeout: float = PATIENCE) -> dict[str, Any]:
        """Wait until a slave holds its master's log up to C{end}, with queues, and says so."""
        return self.until(
            lambda status: (
                status["maxOffset"] == end
                and status["confirmedOffset"] == end
                and status["dispatchedOffset"] in (None, end)
                and (status["upstream"] or {}).get("state") == "in-sync"
            ),
            f"in sync at {end}",
            timeout,
        )

    def until_upstream(self, *states: str, timeout: float = PATIENCE) -> dict[str, Any]:
        """Wait until a slave's replication is in one of the named states."""
        return self.until(
            lambda status: (status["upstream"] or {}).get("state") in states,
            f"upstream {' or '.join(states)}",
            timeout,
        )


class NameServer(Node):
    """A name server's process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "namesrv", "names")
        self.keys = {
            "listenPort": self.port,
            "adminListenPort": self.admin_port,
            "kvConfigPath": folder / "kvConfig.json",
        }

    @property
    def client_address(self) -> str:
        return f"127.0.0.1:{self.port}"


def rmqha(
    *arguments: object, timeout: float, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of C{rmqha} to its end: its exit code, and all that it wrote."""
    script = "from rmqha.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )


def end_all(*kept: Process) -> None:
    """Kill what this process has started and not ended, but for some."""
    for process in _alive.difference(kept):
        process.kill9()


def text_of(keys: Mapping[str, object]) -> str:
    """Keys as a command line shows them."""
    return " ".join(f"{key}={value}" for key, value in keys.items())


atexit.register(end_all)
