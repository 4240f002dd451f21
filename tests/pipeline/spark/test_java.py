"""Tests for L{rmqha.pipeline.spark.session}."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rmqha.pipeline.spark.session import WISH, java_home, wrapped
from tests.support.commands import ended


def program(path: Path, text: str) -> None:
    """Make a program."""
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o755)


class JavaTests(SynchronousTestCase):
    """A Java is looked for where it may be."""

    def test_environment(self) -> None:
        """With a JAVA_HOME, or a java on the path, nothing is changed."""
        self.assertIsNone(java_home({"JAVA_HOME": "/opt/java", "PATH": ""}))
        folder = Path(self.mktemp()).absolute()
        program(folder / "java", "#!/bin/sh\n")
        self.assertIsNone(java_home({"PATH": str(folder)}))

    def test_wrapper(self) -> None:
        """The wrapper hands on every argument but the one that a small Java cannot fulfil."""
        home, cache = (Path(self.mktemp()).absolute() for _ in range(2))
        program(home / "bin" / "java", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
        for _ in range(2):
            made = wrapped(home, cache)
        command = [made / "bin" / "java", "-Xmx1g", WISH, "a b", "--add-modules=x"]
        done = ended(*command, check=True)
        self.assertEqual(["-Xmx1g", "a b", "--add-modules=x"], done.stdout.splitlines())
