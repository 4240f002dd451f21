"""Tests for L{rmqha.tier.objects}: what an object store that does not do as it is asked looks like.

What a server says was taken down from pyarrow and deltalake beside an S3 server that answered so.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rmqha.tier import objects
from rmqha.tier.errors import TierMissing, TierRefused, TierUnreachable
from rmqha.tier.joined_log import find_log, only_tier
from rmqha.tier.objects import ObjectFolder
from tests.cli.command import CommandTestCase
from tests.support.tiers import FULL, SIZE, TierCase

try:
    from tests.support.objects import Objects
except ImportError as missing:  # without the extras
    skip = f"an extra is not installed: {missing}"

URL = "s3://bucket/tier"

LISTING = "When listing objects under key 'tier/manifests/' in bucket 'bucket': AWS Error "

LASTING = (
    "NO_SUCH_BUCKET during ListObjectsV2 operation: The specified bucket does not exist",
    "ACCESS_DENIED during HeadObject operation: No response body.",
    "INVALID_ACCESS_KEY_ID during ListObjectsV2 operation: it is not known",
    "SIGNATURE_DOES_NOT_MATCH during ListObjectsV2 operation: SignatureDoesNotMatch",
    "UNKNOWN (HTTP status 301) during ListObjectsV2 operation: Unable: PermanentRedirect",
)

PASSING = (
    "REQUEST_TIME_TOO_SKEWED during ListObjectsV2 operation: RequestTimeTooSkewed",
    "UNKNOWN (HTTP status 400) during ListObjectsV2 operation: Unable: ExpiredToken",
    "SLOW_DOWN during ListObjectsV2 operation: SlowDown",
    "NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 28, Timeout was reached",
)


class FaultTests(SynchronousTestCase):
    """One request, and what becomes of it."""

    def setUp(self) -> None:
        self.store = Objects()
        self.store.use(self)
        self.folder = ObjectFolder.at(URL)

    def answer(self, *answers: Exception) -> None:
        """Let requests that read fail so, one after the other, and those that follow work."""
        left = list(answers)

        def asked(real: Callable[..., Any]) -> Callable[..., Any]:
            def ask(*given: Any) -> Any:
                if left:
                    raise left.pop(0)
                return real(*given)

            return ask

        for name in ("get_file_info_selector", "open_input_file"):
            setattr(self.store, name, asked(getattr(self.store, name)))

    def test_what_a_person_mends(self) -> None:
        """It is told with what mends it, by whichever library it was met."""
        for said in LASTING:
            self.answer(OSError(LISTING + said))
            error = self.assertRaises(TierRefused, self.folder.names, "manifests")
            self.assertIn("and run the command again", str(error))
        for said in ("<Code>NoSuchBucket</Code>", "<Code>AccessDenied</Code>"):
            error = objects.unreachable(URL, OSError(f"Generic S3 error {said}"))
            self.assertIsInstance(error, TierRefused)
        self.assertIsInstance(objects.unreachable(URL, PermissionError(13, "no")), TierRefused)

    def test_what_passes(self) -> None:
        """What may be over the next time is not; a wrong clock is named."""
        for said in PASSING:
            self.answer(OSError(LISTING + said))
            error = self.assertRaises(TierUnreachable, self.folder.names, "manifests")
            self.assertNotIsInstance(error, TierRefused)
            self.assertEqual("clock" in str(error), "SKEWED" in said)

    def test_no_bucket(self) -> None:
        """What is in a bucket that is not there is not merely absent."""
        self.store.kept["bucket/tier/a"] = b"a"
        self.assertRaises(FileNotFoundError, self.folder.read, "b")
        self.folder.remove("b")
        self.store.kept.clear()
        for ask in (self.folder.read, self.folder.open, self.folder.remove):
            error = self.assertRaises(TierRefused, ask, "a")
            self.assertIn("there is no bucket bucket", str(error))

    def test_small_object_put_off(self) -> None:
        """An answer that is longer than the object, as that of a busy server, is no end."""
        self.store.kept["bucket/tier/a"] = b"a"
        waits: list[float] = []
        self.patch(objects, "sleep", waits.append)
        busy = OSError(
            "AWS Error INTERNAL_FAILURE during GetObject operation: Failed to flush response "
            "stream (eof: 0, bad: 1)"
        )
        self.answer(busy, busy)
        self.assertEqual((b"a", 2), (self.folder.read("a"), len(waits)))
        self.answer(*[busy] * 9)
        self.assertRaises(TierUnreachable, self.folder.read, "a")
        self.answer(OSError(LISTING + LASTING[1]))
        self.assertRaises(TierRefused, self.folder.read, "a")

    def test_fault_of_what_is_sent(self) -> None:
        """A file that cannot be read is no fault of the object store's."""

        def parts() -> Any:
            yield b"a"
            raise OSError(5, "Input/output error")

        self.assertEqual(5, self.assertRaises(OSError, self.folder.write, "a", parts()).errno)

    def test_long_wait(self) -> None:
        """A request that takes long is told while it does, and again; what is quick is not."""
        self.patch(objects, "PATIENCE", 0.05)
        with (
            self.assertLogs("rmqha.tier.objects", "WARNING") as logs,
            objects.told_if_slow("s3://bucket/a"),
        ):
            time.sleep(0.5)
        self.assertIn("s3://bucket/a: no answer for 0 s, still waiting", logs.output[0])
        self.assertGreater(len(logs.output), 1)
        told = len(logs.output)
        self.folder.names("manifests")
        self.assertEqual(told, len(logs.output))


class SlowServerTests(SynchronousTestCase):
    def test_slow_answer(self) -> None:
        """An answer that takes longer than the three seconds of pyarrow's is waited for."""
        one = b"<Contents><Key>t/m/a</Key><Size>1</Size></Contents>"
        body = b"<ListBucketResult>" + one + b"</ListBucketResult>"
        asked: list[bytes] = []
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)

        def serve() -> None:
            for seconds in (3.5, 0):
                try:
                    connection = server.accept()[0]
                except OSError:  # nobody asks again
                    return
                asked.append(connection.recv(65536))
                time.sleep(seconds)
                head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
                connection.sendall(head % len(body) + body)
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        where = f"127.0.0.1:{server.getsockname()[1]}"
        options = f"endpoint_override={where}&scheme=http&region=us-east-1"
        folder = ObjectFolder.at(f"s3://key:secret@bucket/t?{options}")
        self.assertEqual(["a"], folder.names("m"))
        self.assertEqual(1, len(asked))


class CommandTests(TierCase, CommandTestCase):
    """C{rmqha tier} and C{rmqha restore} beside such a store."""

    def setUp(self) -> None:
        super().setUp()
        self.objects = Objects()
        self.objects.use(self)
        self.url = URL
        self.objects.kept["bucket/else"] = b""

    def follow(self, between: Callable[[int], None]) -> Any:
        """Run C{rmqha tier --follow}, for three looks at most, with a call after each."""
        from rmqha.cli.archives import tier

        looks: list[float] = []

        def sleep(seconds: float) -> None:
            looks.append(seconds)
            if len(looks) > 2:
                raise KeyboardInterrupt
            between(len(looks))

        self.patch(tier, "sleep", sleep)
        return self.run_command("tier", self.store, self.url, "--follow")

    def refuse(self, said: str) -> None:
        """Answer each listing so from now on."""

        def selector(selector: Any) -> Any:
            raise OSError(LISTING + said)

        self.patch(self.objects, "get_file_info_selector", selector)

    def test_follow_ends(self) -> None:
        """It ends for a person where asking again helps nobody: at once, and while it runs."""
        for said in LASTING:
            self.objects.kept = {"bucket/else": b""}
            result = self.follow(lambda number, said=said: self.refuse(said))
            self.assertEqual(78, result.exit_code, result.stderr)
            self.assertIn("and run the command again", result.stderr)
            self.assertEqual(78, self.follow(lambda number: None).exit_code)
            del self.objects.get_file_info_selector

    def test_follow_goes_on(self) -> None:
        """It goes on where it does."""
        for said in PASSING:
            self.objects.kept = {"bucket/else": b""}
            self.refuse(said)
            result = self.follow(lambda number: vars(self.objects).pop("get_file_info_selector", 0))
            self.assertIn("trying again in 10 s", result.stderr)
            self.assertIn(f"{FULL} files uploaded", result.stdout)

    def test_follow_emptied(self) -> None:
        """Of a tier that was emptied meanwhile it is said what is not there again."""

        def emptied(number: int) -> None:
            if number == 1:
                self.objects.kept = {"bucket/else": b""}
                self.retention(2)

        result = self.follow(emptied)
        self.assertIn(
            f"{URL} had bytes 0 to {FULL * SIZE}, and has {2 * SIZE} to {FULL * SIZE} now",
            result.stderr,
        )
        self.assertEqual(1, result.stderr.count("files were removed"))

    def test_restore(self) -> None:
        """A restore says whether there is no tier, or no bucket."""
        made = self.folder() / "made"
        self.assertIn("no log was ever uploaded", self.fails(1, "restore", URL, made))
        self.assertRaises(TierMissing, find_log, only_tier(URL), URL)
        self.refuse(LASTING[0])
        self.assertIn("make the bucket", self.fails(1, "restore", URL, made))
        self.assertFalse(made.exists())
