"""An etcd in memory, with as many members as a test wants, that answers as 3.4's gateway does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from attrs import define, field
from treq.testing import StubTreq
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectingCancelledError, ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from rmqha.controller.etcd.client import EtcdClient, decoded, encoded

Answer = dict[str, Any]


@define(eq=False)
class Kept:
    """One key."""

    value: str
    created: int
    changed: int
    lease: str


@define(eq=False)
class FakeEtcd(Resource):
    """Its state, and what its gateway says.

    @ivar leases: When each is over, and its TTL.
    @ivar refused: What is answered instead, by path: status and text.
    @ivar late: Paths that are worked at and not answered.
    @ivar dark: Addresses to which no connection comes to be; C{gone} ones refuse them.
    @ivar mute: Addresses that take what comes and answer nothing.
    @ivar account: User and password; C{None} while its authentication is off.
    """

    clock: Clock
    keys: dict[str, Kept] = field(factory=dict)
    leases: dict[str, tuple[float, int]] = field(factory=dict)
    revision: int = 1
    compacted: int = 0
    gone: set[str] = field(factory=set)
    dark: set[str] = field(factory=set)
    mute: set[str] = field(factory=set)
    refused: dict[str, tuple[int, str]] = field(factory=dict)
    late: set[str] = field(factory=set)
    alarms: list[str] = field(factory=list)
    account: tuple[str, str] | None = None
    token: str = "t1"
    asked: list[tuple[str, str]] = field(factory=list)
    watchers: list[Request] = field(factory=list)
    began: list[int] = field(factory=list)

    isLeaf = True

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def client(self, *addresses: str, **more: Any) -> EtcdClient:
        return EtcdClient(addresses=addresses, http=self, clock=self.clock, **more)

    # --- as treq --------------------------------------------------------------------

    def post(self, url: str, **how: Any) -> Deferred[Any]:
        address = url.split("/")[2]
        self.asked.append((address, url.partition("/v3/")[2]))
        if address in self.gone:
            return fail(ConnectionRefusedError("refused"))
        if address in self.dark:
            return Deferred(lambda asked: asked.errback(ConnectingCancelledError(None)))
        if address in self.mute:
            return Deferred()
        stub = StubTreq(self)
        self.flush = stub.flush
        answered: Deferred[Any] = stub.post(url, **how)
        return answered

    flush: Callable[[], None] = field(default=lambda: None)

    # --- as a server ------------------------------------------------------------------

    def render_POST(self, request: Request) -> bytes | int:
        path = request.path.decode().removeprefix("/v3/")
        body = json.loads(request.content.read())
        if path in self.refused:
            status, text = self.refused[path]
            return self.said(request, status, {"error": text})
        if path == "auth/authenticate":
            if (body["name"], body["password"]) != self.account:
                return self.said(request, 400, {"error": "authentication failed"})
            return self.said(request, 200, {"token": self.token})
        if self.account and request.getHeader("authorization") != self.token:
            return self.said(request, 401, {"error": "etcdserver: invalid auth token"})
        if path == "watch":
            return self.watch(request, body["create_request"])
        self.expire()
        answer = getattr(self, path.replace("/", "_"))(body)
        if path in self.late:
            return NOT_DONE_YET
        if "code" in answer:
            return self.said(request, answer.pop("code"), answer)
        return self.said(request, 200, {"header": {"revision": str(self.revision)}, **answer})

    def said(self, request: Request, status: int, answer: Answer) -> bytes:
        request.setResponseCode(status)
        return json.dumps(answer).encode()

    def expire(self) -> None:
        now = self.clock.seconds()
        for lease, (until, _) in list(self.leases.items()):
            if until <= now:
                self.end(lease)

    def end(self, lease: str) -> None:
        self.leases.pop(lease, None)
        for key in [key for key, kept in self.keys.items() if kept.lease == lease]:
            del self.keys[key]
            self.revision += 1
        self.tell()

    # --- operations -------------------------------------------------------------------

    def kv_range(self, body: Answer) -> Answer:
        """One key, or those of a range."""
        return {
            "kvs": [
                {
                    "key": encoded(key),
                    "value": encoded(kept.value),
                    "create_revision": str(kept.created),
                    "mod_revision": str(kept.changed),
                    "lease": kept.lease,
                }
                for key in self.within(body)
                for kept in (self.keys[key],)
            ]
        }

    def within(self, asked: Answer) -> list[str]:
        """The keys that a request means."""
        first, last = decoded(asked["key"]), decoded(asked.get("range_end"))
        return sorted(key for key in self.keys if key == first or first <= key < last)

    def kv_txn(self, body: Answer) -> Answer:
        well = all(map(self.holds, body["compare"]))
        done = body.get("success" if well else "failure", [])
        if any("request_range" not in each for each in done):
            self.revision += 1
        answers: list[Answer] = []
        for each in done:
            if put := each.get("request_put"):
                key = decoded(put["key"])
                before = self.keys.get(key)
                created = self.revision if before is None else before.created
                lease = put.get("lease", "")
                self.keys[key] = Kept(decoded(put["value"]), created, self.revision, lease)
                answers.append({"response_put": {}})
            elif deleted := each.get("request_delete_range"):
                for key in self.within(deleted):
                    del self.keys[key]
                answers.append({"response_delete_range": {}})
            else:
                answers.append({"response_range": self.kv_range(each["request_range"])})
        self.tell()
        return {"succeeded": well, "responses": answers}

    def holds(self, compare: Answer) -> bool:
        """One comparison, of each key of a range."""
        if "range_end" in compare:
            assert (compare["target"], compare["result"]) == ("CREATE", "EQUAL")
            return not self.within(compare)
        kept = self.keys.get(decoded(compare["key"]))
        if compare["target"] == "LEASE":
            return (kept.lease if kept else "0") == compare["lease"]
        name = "mod_revision" if compare["target"] == "MOD" else "create_revision"
        found = 0 if kept is None else kept.changed if name == "mod_revision" else kept.created
        asked = int(compare[name])
        return found > asked if compare["result"] == "GREATER" else found == asked

    def lease_grant(self, body: Answer) -> Answer:
        number, ttl = str(700 + len(self.asked)), int(body["TTL"])
        self.leases[number] = self.clock.seconds() + ttl, ttl
        return {"ID": number, "TTL": str(ttl)}

    def lease_keepalive(self, body: Answer) -> Answer:
        known = self.leases.get(body["ID"])
        if known is None:
            return {"result": {"ID": body["ID"]}}
        self.leases[body["ID"]] = self.clock.seconds() + known[1], known[1]
        return {"result": {"ID": body["ID"], "TTL": str(known[1])}}

    def lease_revoke(self, body: Answer) -> Answer:
        if body["ID"] not in self.leases:
            return {"code": 404, "error": "etcdserver: requested lease not found"}
        self.end(body["ID"])
        return {}

    def lease_timetolive(self, body: Answer) -> Answer:
        """How long one lives on without a sign of life."""
        until, granted = self.leases.get(body["ID"], (self.clock.seconds() - 1, 0))
        return {"TTL": str(int(until - self.clock.seconds())), "grantedTTL": str(granted)}

    def maintenance_alarm(self, body: Answer) -> Answer:
        """What is wrong with it: nothing is said where nothing is."""
        alarms = [{"memberID": "7", "alarm": name} for name in self.alarms]
        return {"alarms": alarms} if alarms else {}

    # --- watches ----------------------------------------------------------------------

    def watch(self, request: Request, asked: Answer) -> int:
        since = int(asked.get("start_revision", 0))
        self.began.append(since)
        self.line(request, {"header": {"revision": str(self.revision)}, "created": True})
        if 0 < since <= self.compacted:
            self.line(request, {"header": {}, "canceled": True, "compact_revision": "9"})
        else:
            self.watchers.append(request)
        return NOT_DONE_YET

    def tell(self) -> None:
        for each in self.watchers:
            self.line(each, {"header": {"revision": str(self.revision)}, "events": []})

    def line(self, request: Request, result: Answer) -> None:
        """One line of a watch."""
        request.write(json.dumps({"result": result}).encode() + b"\n")

    def hang_up(self) -> None:
        watchers, self.watchers = self.watchers, []
        for each in watchers:
            each.finish()
        self.flush()
