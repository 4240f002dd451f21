"""A name server's brokers in one stream on hosts that each have some of the stores."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.own_name_server import OwnNameServer
from tests.support.rows import publish
from tests.support.spark_needs import why_no_java

try:
    from deltalake import DeltaTable

    from tests.support.spark_drivers import DRIVER, Driver, cluster, release, truth, write
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"
else:
    if why := why_no_java():
        skip = why

HERE = "/proc/self/cwd/../../seen/{broker}"
"""A path that leads each process to what its own host has, on hosts that are folders."""

OWN_STORES = {
    "spark.excludeOnFailure.taskAndStage.enabled": "true",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "1000000",
    "spark.task.maxFailures": "4",
}
"""What the guide says of hosts with stores of their own."""


class RegisteredTests(SynchronousTestCase):
    """Two workers, each on a host of its own."""

    def setUp(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="rmqha-registered-test-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.server = OwnNameServer()
        self.addCleanup(self.server.close)
        release()

    def show(self, host: Path, store: Path) -> None:
        (host / "seen").mkdir(parents=True, exist_ok=True)
        (host / "seen" / store.name).symlink_to(store)

    def test_own_stores(self) -> None:
        """Of fifty brokers eight have something.  A task that comes to a host without the store is
        done by the one that has it, and the batch is one commit.
        """
        hosts = [cluster().folder / worker.name for worker in cluster().workers]
        wanted = {}
        for number in range(50):
            name = f"broker-{number:02}"
            store = self.place / "stores" / name
            if number < 8:
                write(store, 1 << 20)
                wanted[name] = truth(store)
                self.show(hosts[number % 2], store)
            else:
                (store / "commitlog").mkdir(parents=True)
                publish(store, 0)
            self.show(self.place / "driver", store)
            self.server.register(name, host=f"10.0.0.{number}")
        self.addCleanup(self._unsee, hosts)
        (self.place / "driver/a/b").mkdir(parents=True)
        driver = Driver("registered", cwd=self.place / "driver/a/b").start()
        self.addCleanup(driver.stop)
        settings = {**cluster().settings, **DRIVER, **OWN_STORES}
        driver.do("start", where=cluster().url, settings=settings)
        told = driver.do("registered", path=HERE, server=self.server.address, place=str(self.place))
        self.assertEqual({"ended": True, "batches": 1}, told)
        table = DeltaTable(str(self.place / "table"))
        found: dict[str, list[int]] = {}
        for row in table.to_pyarrow_table(columns=["store", "physical_offset"]).to_pylist():
            found.setdefault(row["store"], []).append(row["physical_offset"])
        told_rows = {name: [len(o), len(set(o)), sum(o)] for name, o in found.items()}
        self.assertEqual(wanted, told_rows)
        writes = [each for each in table.history() if each["operation"] == "WRITE"]
        self.assertEqual(1, len(writes), "a batch is one commit")

    def _unsee(self, hosts: list[Path]) -> None:
        for host in hosts:
            shutil.rmtree(host / "seen", ignore_errors=True)
