"""Run all of it and write the page: C{python -m tests.interop [--full] [TEST ...]}.

Most of the time is JVMs that start and stop, so the versions run beside each other, and
those that take long in several parts.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from lab.harness.nodes import ROOT, Folder
from lab.stock import jars, packages
from tests.interop import matrix
from tests.interop.cases import InteropTestCase

#: How many processes share the tests with a version: 5.x takes twice as long to start and
#: to stop, and with 4.9 come the clients of other languages.
PARTS = {"4.9.7": 2, "5.3.3": 2}

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


def wrong(wanted: list[str], *, full: bool) -> str:
    """Why a run of these names would leave one of them out; empty if it would not."""
    known = {name: case for version in jars.VERSIONS for name, case in cases(version).items()}
    told = []
    for name in wanted:
        group = name if name in known else name.rpartition(".")[0]
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


def _last(name: str) -> str:
    return name.rpartition(".")[2]


class Run:
    """Some classes of tests, in a process of their own."""

    def __init__(
        self, name: str, names: list[str], folder: Path, full: bool, wanted: list[str]
    ) -> None:
        self.results = folder / f"results-{name}"
        self.log = folder / f"log-{name}"
        environment = dict(os.environ, RMQHA_INTEROP="full" if full else "1")
        environment[matrix.RESULTS] = str(self.results)
        chosen = [test for test in wanted if test.rsplit(".", 1)[0] in names or test in names]
        command = [sys.executable, "-m", "twisted.trial", "--reporter=text"]
        command += [f"--temp-directory={folder / f'trial-{name}'}"]
        self.process: subprocess.Popen[bytes] | None = None
        if chosen or not wanted:
            with open(self.log, "wb") as log:
                self.process = subprocess.Popen(
                    [*command, *(chosen or names)],
                    cwd=ROOT,
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )

    def wait(self) -> int:
        """Wait for its end, and show what it said.

        @return: The exit code.
        """
        if self.process is None:
            return 0
        code = self.process.wait(LIMIT)
        sys.stdout.write(self._said())
        sys.stdout.flush()
        return code

    def failed(self) -> list[str]:
        """The tests that failed."""
        if not self.process:
            return []
        told = "".join(FAILED.findall(self._said()))
        return sorted(set(re.findall(r"(?m)^tests\.interop\.[\w.]+$", told)))

    def _said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


def main(arguments: list[str]) -> int:
    """Fetch the peers, run the tests, and write what came of it.

    @return: The worst exit code; 0 without peers, as then all tests are skipped; L{UNKNOWN} if a
        name chooses nothing.
    """
    wanted, full = [name for name in arguments if name != "--full"], "--full" in arguments
    refused = wrong(wanted, full=full)
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
    for clients in (packages.node, packages.python):
        try:
            clients()
        except jars.Missing as error:
            complete = False
            jars.say(f"interop skipped: some clients: {error}")
    kept = Folder("interop-results-")
    begun = time.monotonic()
    classes = {version: list(cases(version)) for version in jars.VERSIONS}
    runs = [
        Run(f"{version}-{part}", classes[version][part :: PARTS[version]], kept.path, full, wanted)
        for version in jars.VERSIONS
        for part in range(PARTS[version])
    ]
    code = max([run.wait() for run in runs])
    found = [row for run in runs for row in matrix.recorded(run.results)]
    again = [test for run in runs for test in run.failed()]
    if 0 < len(again) <= AGAIN:
        jars.say(f"once more, alone: {', '.join(again)}")
        every = [name for version in jars.VERSIONS for name in classes[version]]
        second = Run("again", every, kept.path, full, again)
        code = second.wait()
        found = matrix.repeated(found, matrix.recorded(second.results))
    failed = sum(row.result == matrix.FAILED for row in found)
    jars.say(f"{len(found)} scenarios, {failed} failed, {time.monotonic() - begun:.0f} s")
    if found and complete and not wanted:
        matrix.PAGE.write_text(matrix.page(found), encoding="utf-8")
        jars.say(f"wrote {matrix.PAGE.relative_to(ROOT)}")
    kept.remove()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
