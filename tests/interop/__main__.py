"""
Run all of it and write the page: C{python -m tests.interop [--full] [TEST ...]}.

Most of the time is JVMs that start and stop, so the versions run beside each other.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.interop import jars, matrix
from tests.interop.cases import InteropTestCase
from tests.support.nodes import ROOT, Folder

#: Seconds that one run may take before something hangs.
LIMIT = 3600.0


def classes(version: str) -> list[str]:
    """
    The names of all classes of tests with one version.
    """
    found = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.interop.{path.stem}")
        for name, value in vars(module).items():
            ours = isinstance(value, type) and issubclass(value, InteropTestCase)
            if ours and value.version == version:
                found.append(f"{module.__name__}.{name}")
    return found


class Run:
    """
    All tests with one version, in a process of their own.
    """

    def __init__(self, version: str, folder: Path, full: bool, wanted: list[str]) -> None:
        self.results = folder / f"results-{version}"
        self.log = folder / f"log-{version}"
        environment = dict(os.environ, RMQHA_INTEROP="full" if full else "1")
        environment[matrix.RESULTS] = str(self.results)
        names = classes(version)
        chosen = [test for test in wanted if test.rsplit(".", 1)[0] in names or test in names]
        command = [sys.executable, "-m", "twisted.trial", "--reporter=text"]
        command += [f"--temp-directory={folder / f'trial-{version}'}"]
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
        """
        Wait for its end, and show what it said.

        @return: The exit code.
        """
        if self.process is None:
            return 0
        code = self.process.wait(LIMIT)
        sys.stdout.write(self.log.read_text(encoding="utf-8", errors="replace"))
        sys.stdout.flush()
        return code


def main(arguments: list[str]) -> int:
    """
    Fetch the peers, run the tests, and write what came of it.

    @return: The worst exit code; 0 without peers, as then there is nothing to test.
    """
    wanted = [name for name in arguments if name != "--full"]
    for version in jars.VERSIONS:
        try:
            jars.resolve(version)
        except jars.Missing as error:
            jars.say(f"interop skipped: RocketMQ {version}: {error}")
            return 0
    kept = Folder("interop-results-")
    begun = time.monotonic()
    full = "--full" in arguments
    runs = [Run(version, kept.path, full, wanted) for version in jars.VERSIONS]
    code = max([run.wait() for run in runs])
    found = [row for run in runs for row in matrix.recorded(run.results)]
    failed = sum(row.result != "ok" for row in found)
    jars.say(f"{len(found)} scenarios, {failed} failed, {time.monotonic() - begun:.0f} s")
    if found and not wanted:
        matrix.PAGE.write_text(matrix.page(found), encoding="utf-8")
        jars.say(f"wrote {matrix.PAGE.relative_to(ROOT)}")
    kept.remove()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
