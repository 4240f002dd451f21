"""C{rmqha config check}."""

from __future__ import annotations

from pathlib import Path

from lab.harness import golden
from tests.cli.command import CommandTestCase


class ConfigTests(CommandTestCase):
    def conf(self, text: str) -> Path:
        path = Path(self.mktemp())
        path.write_text(text)
        return path

    def test_good(self) -> None:
        """Every key is listed with its value and where that comes from."""
        path = self.conf("brokerRole=SYNC_MASTER\nlistenPort=20911\nhaSlaveHandler=x\n"[:40])
        text = self.succeed("config", "check", path, "--set", "slaveTimeout=1000")
        lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
        self.assertEqual(lines["brokerRole"], ["SYNC_MASTER", "line", "1"])
        self.assertEqual(lines["haListenPort"][-2:], ["20912", "default"])
        self.assertEqual(lines["slaveTimeout"], ["1000", "--set"])

    def test_json(self) -> None:
        """The same as JSON, with what was noted and what was ignored."""
        path = self.conf("mappedFileSizeCommitLog=262144\nnamesrvAddr=a:1\nuseTLS=false\n")
        said = self.answer("config", "check", path)
        self.assertEqual(said["settings"]["mappedFileSizeCommitLog"]["value"], "262144")
        self.assertFalse(said["settings"]["mappedFileSizeCommitLog"]["default"])
        self.assertIsInstance(said["notes"], list)
        self.assertIsInstance(said["ignored"], list)

    def test_expiry(self) -> None:
        """Of a store that is there it is said which log files go next, and when."""
        root = golden.store(golden.VERSIONS[-1])
        sizes = f"storePathRootDir={root}\nmappedFileSizeCommitLog={golden.LOG_FILE_SIZE}\n"
        path = self.conf(
            sizes + f"mappedFileSizeConsumeQueue={golden.QUEUE_FILE_SIZE}\n"
            f"maxHashSlotNum={golden.INDEX_SLOTS}\nmaxIndexNum={golden.INDEX_ENTRIES}\n"
        )
        said = self.run_command("config", "check", path)
        self.assertEqual(said.exit_code, 0, said.output)
        self.assertRegex(
            said.stderr, r"log files are older than fileReservedTime=72; they came here"
        )
        self.assertIn("log files are older", self.answer("config", "check", path)["retention"])

    def test_notes(self) -> None:
        """Keys that mean nothing here are listed on stderr."""
        path = self.conf("sendMessageThreadPoolNums=16\n")
        result = self.run_command("config", "check", path)
        self.assertEqual(result.exit_code, 0)
        self.assertIn("ignored, without effect in rmqha: sendMessageThreadPoolNums", result.stderr)

    def test_all_problems(self) -> None:
        """All problems are told at once, one a line, each with its place."""
        path = self.conf("flushDiskTyp=SYNC_FLUSH\nlistenPort=70000\nenableDLegerCommitLog=true\n")
        result = self.run_command("config", "check", path, "--set", "nonsense")
        self.assertEqual(result.exit_code, 1)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 4, lines)
        self.assertIn(
            f"{path}:1: unknown key flushDiskTyp; did you mean flushDiskType?", result.stderr
        )
        self.assertIn("listenPort=70000", result.stderr)
        self.assertIn("enableDLegerCommitLog", result.stderr)
        self.assertIn("nonsense", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_changed(self) -> None:
        """With --changed only what is not the default is shown."""
        path = self.conf("listenPort=20911\nslaveTimeout=3000\nnamesrvAddr=10.0.0.1:9876\n")
        text = self.succeed("config", "check", path, "--changed")
        keys = [line.split()[0] for line in text.splitlines() if line.strip()][1:]
        self.assertEqual(sorted(keys), ["listenPort", "namesrvAddr"])
        said = self.answer("config", "check", path, "--changed")
        self.assertEqual(sorted(said["settings"]), ["listenPort", "namesrvAddr"])

    def test_diff(self) -> None:
        """With --diff only what two files say differently is shown."""
        master = self.conf("brokerRole=SYNC_MASTER\nbrokerName=a\nlistenPort=10911\n")
        slave = self.conf("brokerRole=SLAVE\nbrokerName=a\nlistenPort=20911\nbrokerId=1\n")
        text = self.succeed("config", "check", master, "--diff", slave)
        rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
        self.assertEqual(rows["brokerRole"], ["SYNC_MASTER", "SLAVE"])
        self.assertEqual(rows["haListenPort"], ["10912", "20912"])
        self.assertNotIn("brokerName", rows)
        said = self.answer("config", "check", master, "--diff", slave)
        self.assertEqual(said["differences"]["brokerId"], {"file": "0", "other": "1"})

    def test_dead(self) -> None:
        """Keys that RocketMQ does not read either are named with their line, and not refused."""
        path = self.conf("storePathIndex=/x\nbrokerName=a\nabortFile=/x/abort\n")
        result = self.run_command("config", "check", path)
        self.assertEqual(result.exit_code, 0)
        self.assertIn(f"{path}:1: storePathIndex is a dead key", result.stderr)
        self.assertIn(f"{path}:3: abortFile is a dead key", result.stderr)

    def test_advice(self) -> None:
        """What is allowed and not wise is said; it is no failure."""
        path = self.conf("brokerRole=SYNC_MASTER\n")
        result = self.run_command("config", "check", path)
        self.assertEqual(result.exit_code, 0)
        for word in ("haAllowedPeers", "namesrvAddr", "ASYNC_FLUSH"):
            self.assertIn(word, result.stderr)
        self.assertEqual(3, len(self.answer("config", "check", path)["advice"]))

    def test_sizes(self) -> None:
        """Files on the disk that have other sizes are a failure that names key and sizes."""
        root = Path(self.mktemp())
        for name, size in (("commitlog", 65545), ("consumequeue/T/0", 6000)):
            (root / name).mkdir(parents=True)
            (root / name / f"{0:020}").write_bytes(bytes(size))
        right = "mappedFileSizeCommitLog=65545\nmappedFileSizeConsumeQueue=6000\n"
        keys = f"storePathRootDir={root.absolute()}\n"
        self.succeed("config", "check", self.conf(keys + right))
        result = self.run_command("config", "check", self.conf(keys))
        self.assertEqual(result.exit_code, 1)
        said = " ".join(result.stderr.split())
        self.assertIn("mappedFileSizeCommitLog is 1073741824", said)
        self.assertIn("made with 65545", said)
        self.assertIn("made with 6000", said)

    def test_files(self) -> None:
        """Keys, certificates and accounts that cannot be used fail a start, naming the file."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "key.pem").write_text("rubbish")
        path = folder / "broker.conf"
        path.write_text(
            f"tlsKeyPath={folder}/key.pem\ntlsCertPath={folder}/key.pem\ntlsEnable=true\n"
            f"tlsClientTrustCertPath={folder}/roots.pem\n"
            f"aclEnable=true\naclCredentialsFile={folder}/tools.yml\n"
        )
        result = self.run_command("config", "check", path)
        self.assertEqual(result.exit_code, 1)
        said = " ".join(result.stderr.split())
        self.assertIn("key.pem: there is no certificate in it", said)
        for name in ("roots.pem", "plain_acl.yml", "tools.yml"):
            self.assertIn(f"{name}: No such file", said)
        self.assertEqual(4, len(self.answer("config", "check", path, code=1)["filesUnusable"]))
        (folder / "plain_acl.yml").write_text("accounts: []\n")
        (folder / "tools.yml").write_text("accessKey: operator\nsecretKey: sealed-well\n")
        path.write_text(f"aclEnable=true\naclCredentialsFile={folder}/tools.yml\n")
        self.succeed("config", "check", path)

    def test_role(self) -> None:
        """A role that contradicts the file is refused; an unknown one is a usage error."""
        path = self.conf("brokerRole=SLAVE\nbrokerId=1\n")
        self.assertIn("brokerRole", self.fails(1, "config", "check", path, "--role", "master"))
        self.assertIn("observer", self.fails(2, "config", "check", path, "--role", "observer"))

    def test_no_file(self) -> None:
        """A file that is not there is one line."""
        self.assertIn("No such file", self.fails(1, "config", "check", "/nowhere/broker.conf"))
