"""Run all of it and write the page: C{python -m tests.interop [--full | --daily] [TEST ...]}.

Most of the time is JVMs that start and stop, so several processes share the tests.
"""

from __future__ import annotations

import datetime
import importlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from zlib import crc32

from lab.harness.nodes import ROOT, Folder
from lab.stock import jars, packages
from tests.interop import matrix
from tests.interop.cases import InteropTestCase

#: In this order the page names what there is beside each.
VERSIONS = tuple(reversed(jars.VERSIONS))

#: How many parts run at once.
AT_ONCE = 4

#: So many classes a part has at least: each begins with a JVM of its own.
LEAST = 4

#: Seconds between two looks at whether one has ended.
PAUSE = 0.2

#: Seconds that one run may take before something hangs.
LIMIT = 7200.0

#: So many tests may fail and are tried again, alone: beside that many JVMs on a small machine
#: some process waits too long for another now and then.  The page says which.
AGAIN = 3

#: What trial says of a test that failed, and of those with the same traceback.
FAILED = re.compile(r"(?ms)^\[(?:FAIL|ERROR)\]$.*?^(?:tests\.interop\.[\w.]+\n)+")


#: The exit code where a name chooses nothing: nothing is run then.
UNKNOWN = 2


def cases(version: str) -> dict[str, type[InteropTestCase]]:
    """All classes of tests with one version, by their names."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.interop.{path.stem}")
        for name, value in vars(module).items():
            ours = isinstance(value, type) and issubclass(value, InteropTestCase)
            if ours and value.version == version:
                found[f"{module.__name__}.{name}"] = value
    return found


def of_the_day(names: list[str], day: int) -> list[str]:
    """What of these classes one day runs: those that only one version has, and of two that differ
    by the version alone one today, the other tomorrow.
    """
    twins = {"4": "5", "5": "4"}

    def runs(name: str) -> bool:
        digit = re.search(r"(?<=[a-z])[45](?=[A-Z]\w*$)", name)
        if digit is None:
            return True
        at = digit.start()
        if name[:at] + twins[digit[0]] + name[at + 1 :] not in names:
            return True
        older = (crc32((name[:at] + name[at + 1 :]).encode()) + day) % 2 == 0
        return older == (digit[0] == "4")

    return [name for name in names if runs(name)]


def parts(every: Mapping[str, type[InteropTestCase]]) -> Iterator[list[str]]:
    """These classes in parts, each of which begins when one of L{AT_ONCE} has ended: first what is
    long, alone, then the others in shares of what is left, so that all end at about the same time.
    """
    yield from ([name] for name, case in every.items() if case.long)
    rest = [name for name, case in every.items() if not case.long]
    while rest:
        share = max(LEAST, len(rest) // (2 * AT_ONCE))
        yield rest[:share]
        rest = rest[share:]


def wrong(wanted: list[str], *, full: bool) -> str:
    """Why a run of these names would leave one of them out; empty if it would not."""
    known = {name: case for version in VERSIONS for name, case in cases(version).items()}
    told = []
    for name in wanted:
        group = name if name in known else _group(name)
        tests = [f"{group}.{test}" for test in _tests(known.get(group))]
        chosen = tests if name == group else [test for test in tests if test == name]
        if not chosen:
            names = tests or [each for each, case in known.items() if _tests(case)]
            told.append("\n  ".join([f"no scenario is named {name}; there are", *names]))
        elif not full and all(_last(test) in known[group].full_only for test in chosen):
            told.append(f"{name} runs with make interop-full only")
    return "\n".join(told)


def _tests(case: type[InteropTestCase] | None) -> list[str]:
    return [name for name in dir(case) if name.startswith("test_")]


def _group(name: str) -> str:
    return name.rpartition(".")[0]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


class Run:
    """Some classes of tests, in a process of their own."""

    def __init__(self, name: str, tests: list[str], folder: Path, full: bool) -> None:
        self.results = folder / f"results-{name}"
        self.log = folder / f"log-{name}"
        self.environment = dict(os.environ, RMQHA_INTEROP="full" if full else "1")
        self.environment[matrix.RESULTS] = str(self.results)
        self.command = [sys.executable, "-m", "twisted.trial", "--reporter=text"]
        self.command += [f"--temp-directory={folder / f'trial-{name}'}", *tests]

    def start(self) -> Run:
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )
        self.begun = time.monotonic()
        return self

    def ended(self) -> bool:
        """Whether it has ended, unless something hangs."""
        if self.process.poll() is None and time.monotonic() - self.begun > LIMIT:
            raise subprocess.TimeoutExpired(self.command, LIMIT)
        return self.process.returncode is not None

    def wait(self) -> int:
        """Wait for its end, show what it said, and return the exit code."""
        code = self.process.wait(LIMIT)
        sys.stdout.write(self._said())
        sys.stdout.flush()
        return code

    def failed(self) -> list[str]:
        told = "".join(FAILED.findall(self._said()))
        return sorted(set(re.findall(r"(?m)^tests\.interop\.[\w.]+$", told)))

    def _said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


def run_all(runs: list[Run]) -> int:
    """Run them, so many at once, and return the worst exit code."""
    waiting, running, worst = list(runs), list[Run](), 0
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            running.append(waiting.pop(0).start())
        for run in [run for run in running if run.ended()]:
            running.remove(run)
            worst = max(worst, run.wait())
        time.sleep(PAUSE)
    return worst


def main(arguments: list[str]) -> int:
    """Fetch the peers, run the tests, and write what came of it: the worst exit code; 0 without
    peers, as
    all are skipped; L{UNKNOWN} if a name chooses nothing.
    """
    full, daily = "--full" in arguments, "--daily" in arguments
    wanted = [name for name in arguments if name not in ("--full", "--daily")]
    refused = wrong(wanted, full=full)
    if full and daily:
        refused = "--full is everything, --daily a part of it: say one of them"
    if refused:
        jars.say(refused)
        return UNKNOWN
    complete = True
    for version in jars.VERSIONS:
        try:
            jars.resolve(version)
        except jars.Missing as error:
            # Its tests say so too, each of them.
            complete = False
            jars.say(f"interop skipped: RocketMQ {version}: {error}")
    for clients in (
        jars.resolve_alone,
        packages.node,
        packages.python,
        packages.grpc_node,
        packages.grpc_python,
    ):
        try:
            clients()
        except jars.Missing as error:
            complete = False
            jars.say(f"interop skipped: some clients: {error}")
    kept = Folder("interop-results-")
    begun = time.monotonic()
    every = {
        name: case for version in VERSIONS for name, case in cases(version).items() if _tests(case)
    }
    chosen = list(every)
    if daily:
        chosen = of_the_day(chosen, datetime.date.today().toordinal())
        jars.say(f"today {len(chosen)} of {len(every)} classes; make interop runs all")
    runs = list[Run]()
    for number, tests in enumerate(parts({name: every[name] for name in chosen})):
        if wanted:
            tests = [test for test in wanted if test in tests or _group(test) in tests]
        if tests:
            runs.append(Run(str(number), tests, kept.path, full))
    code = run_all(runs)
    found = [row for run in runs for row in matrix.recorded(run.results)]
    again = [test for run in runs for test in run.failed()]
    if 0 < len(again) <= AGAIN:
        jars.say(f"once more, alone: {', '.join(again)}")
        second = Run("again", again, kept.path, full)
        code = second.start().wait()
        found = matrix.repeated(found, matrix.recorded(second.results))
    failed = sum(row.result == matrix.FAILED for row in found)
    seconds = time.monotonic() - begun
    jars.say(f"{len(found)} scenarios, {failed} failed, {len(again)} tests that failed at first")
    jars.say(f"interop took {seconds:.0f} s")
    if found and complete and not wanted and not daily:
        matrix.PAGE.write_text(matrix.page(found), encoding="utf-8")
        jars.say(f"wrote {matrix.PAGE.relative_to(ROOT)}")
    kept.remove()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
