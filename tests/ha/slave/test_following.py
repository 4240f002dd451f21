"""A slave and all masters it may meet: what it holds, says and asks, in any order of events."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.ha_settings import BadRecordPolicy, DivergencePolicy, FirstSync, HASettings
from rmqha.errors import RecordCorrupt, Refused
from rmqha.ha.slave import probe
from rmqha.ha.slave.follow_state import DISK_RETRY, FollowState
from rmqha.ha.slave.master_bounds import BrokerIdentity, MasterBounds
from rmqha.ha.slave.probe import ProbeKind
from rmqha.ha.slave.repair import Divergence, plan_cut
from rmqha.ha.slave.reportable import accepted_end, flushed_end
from rmqha.ha.states import SyncState
from rmqha.store.log.commit_log import CommitLog
from tests.support.following import SIZE, FollowerCase
from tests.support.ha_frames import append_frame, encode_header
from tests.support.logs import Disk, content
from tests.support.machines import run_machine
from tests.support.model_master import MasterSession, ModelMaster

WINDOW = 1000
"""In place of 64 MiB; more than a blank of these logs has, less than a file."""

BATCH = 300

LONGEST = HASettings().backoff_max
"""Most seconds between two connections, and what a stop state waits."""

SIZES = st.lists(st.integers(150, 400), min_size=1, max_size=6)
"""Of the records of one write."""

MANY = st.lists(st.integers(300, 400), min_size=24, max_size=36)
"""Of records that fill three files."""

_ASKING = {SyncState.PROBING, SyncState.BOOTSTRAPPING}
_FOLLOWING = {SyncState.CATCHING_UP, SyncState.IN_SYNC}
_LAST = {SyncState.FAILED, SyncState.STOPPED}
_STOPS = {state for state in SyncState if state.is_stop} - _LAST

ENTERED_FROM: dict[SyncState, set[SyncState]] = {
    SyncState.CONNECTING: _ASKING | _STOPS,
    SyncState.PROBING: _FOLLOWING | _STOPS | {SyncState.CONNECTING, SyncState.BOOTSTRAPPING},
    SyncState.BOOTSTRAPPING: _FOLLOWING | _STOPS | {SyncState.CONNECTING},
    SyncState.CATCHING_UP: _STOPS | {SyncState.CONNECTING, SyncState.IN_SYNC},
    # The last one with an empty master, which begins to write.
    SyncState.IN_SYNC: _STOPS
    | {SyncState.CONNECTING, SyncState.CATCHING_UP, SyncState.BOOTSTRAPPING},
    **dict.fromkeys(_STOPS, _STOPS | _FOLLOWING | {SyncState.CONNECTING, SyncState.BOOTSTRAPPING}),
}
"""What may follow each state, besides the two last ones; nothing else follows these."""


class WatchedState(FollowState):
    """Keeps what became of the state."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "state" and value is not getattr(self, name, value):
            self.__dict__.setdefault("changes", []).append((self.state, value))
        super().__setattr__(name, value)

    def taken(self) -> list[tuple[SyncState, SyncState]]:
        """The changes since it was asked last."""
        changes: list[tuple[SyncState, SyncState]] = self.__dict__.pop("changes", [])
        return changes


class FollowingMachine(RuleBasedStateMachine):
    """One slave's log and its masters, of which one is there at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.case = FollowerCase()
        self.case.setUp()
        self.case.state_type = WatchedState
        self.case.patch(probe, "PROBE_WINDOW", WINDOW)
        self.authors = iter(range(1, 250))
        self.epoch = 0
        self.session: MasterSession | None = None
        self.proof: MasterSession | None = None
        self.judging: list[Deferred[str]] = []
        # Since the last conclusion, and since the copy began: whether a connection may have said
        # "not from there" that only went away.
        self.misled = self.copy_misled = False
        self.copied_from: ModelMaster | None = None
        self.address, self.conclusions, self.repairs, self.refused = 1, 0, 0, False

    # --- the beginning --------------------------------------------------------------

    @initialize(
        sizes=MANY | st.lists(st.integers(150, 400), max_size=4),
        settings=st.fixed_dictionaries(
            {
                "policy": st.sampled_from(DivergencePolicy),
                "first_sync": st.sampled_from([FirstSync.BEGINNING, *FirstSync]),
            }
        ),
        sync_flush=st.booleans(),
        judged=st.booleans(),
        data=st.data(),
    )
    def begin(
        self,
        sizes: list[int],
        settings: dict[str, Any],
        sync_flush: bool,
        judged: bool,
        data: st.DataObject,
    ) -> None:
        self.settings = settings
        self.sync_flush, self.judged = sync_flush, judged
        self.disk = Disk().install(self.case)
        self.master = ModelMaster(log=self.case.log(), author=next(self.authors))
        self.master.write(*sizes)
        self.habits(data)
        self.former = self.master
        self.mine = self.case.log()
        if data.draw(st.booleans(), "has a log"):
            files = range(0, self.master.end + 1, SIZE)
            start = data.draw(st.sampled_from([0, *files]), "start")
            ends = st.integers(start, self.master.end) | st.sampled_from(files[start // SIZE :])
            ends |= st.integers(start, max(start, self.master.first))
            end = data.draw(ends, "end")
            self.mine = self.copied(self.master.log, start, end)
            if data.draw(st.booleans(), "has more") and self.mine.confirmed > start:
                self.mine.rewind()
                own = ModelMaster(log=self.mine, author=next(self.authors))
                own.write(*data.draw(SIZES, "own records"))
        self.begin_life()
        self.settle(data.draw(st.integers(0, 2), "settles"))

    def habits(self, data: st.DataObject) -> None:
        """How the master that is there now answers."""
        master = self.master
        master.stock, master.tells = data.draw(st.booleans()), data.draw(st.integers(0, 2)) == 2
        master.first = data.draw(st.sampled_from([0, *range(0, master.end, SIZE)]), "first")
        master.epoch = data.draw(st.integers(0, 2), "epoch")

    def copied(self, log: CommitLog, start: int, end: int) -> CommitLog:
        """A log with the same bytes, of which records that are whole are confirmed."""
        full, self.disk.full = self.disk.full, False
        copy = self.case.log()
        copy.begin(start)
        append_frame(copy, start, content(log, start, end))
        with contextlib.suppress(RecordCorrupt):
            copy.verify()
        copy.now_flushed(copy.confirmed)
        self.disk.full = full
        return copy

    def begin_life(self) -> None:
        """The slave's process starts."""
        follower = self.case.follow(
            self.mine,
            bounds=self.bounds,
            batch=BATCH,
            bad_record=BadRecordPolicy.STOP,
            reportable=flushed_end if self.sync_flush else accepted_end,
            followed=self,
            judge=self.judge if self.judged else None,
            is_bootstrapping=bool(self.case.marks and self.case.marks[-1]),
            **self.settings,
        )
        self.sync: WatchedState = follower.sync  # type: ignore[assignment]
        real = self.sync.stopped

        def stopped() -> None:
            self.conclusions += 1
            wait = DISK_RETRY if self.state is SyncState.DISK_FULL else LONGEST
            # A verdict that comes later does not put off what waits already.
            if not self.refetched and self.sync.connection is not None:
                self.leave_alone(wait)
            real()

        self.sync.stopped = stopped
        self.gaps, self.kept = 0, b""
        self.leave_alone(0.0)
        self.misled = self.compared = self.failed = self.released = self.refetched = False

    def leave_alone(self, seconds: float) -> None:
        """The next connection is tried then, not before and not much later."""
        self.due = self.case.clock.seconds() + seconds

    # --- what the slave asks --------------------------------------------------------

    def too_low(self, address: str, epoch: int | None) -> str:
        """Masters below the epoch of the last one are not followed."""
        return f"epoch {epoch}" if epoch is not None and epoch < self.epoch else ""

    def proven(self, address: str, client: str, bounds: MasterBounds | None, end: int) -> None:
        """The master was found to have this log."""
        assert end == self.mine.confirmed
        self.assert_same(self.session.start, end)  # type: ignore[union-attr]
        assert (bounds is not None) is self.peer.tells
        assert self.proof is not self.session, "it was proven on this connection before"
        self.proof, self.compared = self.session, True
        self.epoch = self.epoch if bounds is None else bounds.identity.epoch

    def assert_same(self, start: int | None, end: int) -> None:
        """The slave's bytes are those of the master at the other end."""
        start = max(self.mine.min_offset, 0 if start is None else start)
        if start < end:
            assert content(self.mine, start, end) == self.peer.has(start, end)

    def bounds(self) -> Deferred[MasterBounds]:
        master = self.master
        if not master.tells:
            return fail(ConnectionRefusedError())
        identity = BrokerIdentity(name="a", id=0, run_id="r", epoch=master.epoch)
        return succeed(MasterBounds(master.first, master.end, 5, identity))

    def judge(self, log: CommitLog, at: int, theirs: bytes) -> Deferred[str]:
        assert log is self.mine and theirs == self.peer.has(at, at + len(theirs))
        assert self.state is SyncState.DIVERGED
        assert theirs[0] != content(log, at, at + 1)[0]
        self.judging.append(Deferred())
        return self.judging[-1]

    @property
    def state(self) -> SyncState:
        return self.sync.state

    @property
    def peer(self) -> ModelMaster:
        """The master at the other end of the connection, or the one that is there."""
        return self.master if self.session is None else self.session.master

    # --- connections ----------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no connection is wanted."""
        return self.failed or self.repairing

    @property
    def repairing(self) -> bool:
        return any(not done.called for _, _, done in self.case.repairs)

    @rule(accepts=st.sampled_from([True, True, True, False]))
    def connect(self, accepts: bool) -> None:
        """The next connection, which has to be tried in time and not before it."""
        if self.session is not None and self.session.open:
            return
        clock, waiting = self.case.clock, self.case.endpoint
        self.look()
        until = (
            max(self.due, clock.seconds()) + 0.1 if self.due else clock.seconds() + LONGEST + 0.1
        )
        while not waiting.waiting and clock.seconds() < until:
            due = [call.getTime() for call in clock.getDelayedCalls()]
            clock.advance(max(0.0, min([until, *due]) - clock.seconds()))
        assert bool(waiting.waiting) is not self.idle, f"{self.state}: {self.sync.reason}"
        if self.idle:
            return
        assert clock.seconds() >= self.due, "it was to be left alone"
        self.due = 0.0
        if not accepts:
            waiting.refuse()
            self.mislead()
        else:
            self.case.turn()
            self.session = MasterSession(self.master, waiting.accept(), clock.seconds(), BATCH)
        self.look()

    def mislead(self, really: bool = True) -> None:
        self.misled |= really
        self.copy_misled |= really

    def look_at_question(self) -> None:
        """A first report claims nothing that is not sure."""
        session, log, master = self.session, self.mine, self.master
        assert session is not None and self.sync.connection is not None
        (first,) = session.connection.reports()
        ask = self.sync.connection.question.ask
        assert log.end == log.confirmed == self.sync.connection.own_end
        assert (ask in (ProbeKind.EMPTY, ProbeKind.START)) is (log.end == log.min_offset)
        if ask in (ProbeKind.EMPTY, ProbeKind.SURVEY):
            assert first == 0
        if ask in (ProbeKind.EMPTY, ProbeKind.START):
            assert self.case.marks[-1], "a copy is under way, and no marker says so"
        if ask is ProbeKind.EMPTY:
            beginning = self.settings["first_sync"] is FirstSync.BEGINNING
            self.copied_from, self.copy_misled = master, False
            self.copy_start = master.first if beginning else master.starts_at(0)
        if ask is ProbeKind.OVERLAP:
            low, high = max(log.min_offset, 1), log.end
            if master.tells:
                high = min(high, master.end)
            last = max(low, high - 1 - (high - 1) % SIZE)
            most = max(low, high - WINDOW) if self.compared else last
            assert low <= first <= max(most, last), (first, low, high)
            if self.sync_flush:
                assert first <= max(low, log.flushed)

    @rule(
        frames=st.integers(1, 4),
        most=st.integers(1, 1300) | st.just(1 << 20),
        piece=st.sampled_from([1 << 20, 1 << 20, 97, 7]),
    )
    def serve(self, frames: int, most: int, piece: int) -> None:
        """The master sends what it has, cut anywhere."""
        session = self.session
        if session is None or not session.open or not session.answers:
            return
        for _ in range(frames):
            session.frame()
        session.send(most, piece)
        self.look()

    @rule()
    def close(self) -> None:
        """The connection is lost, wherever it was."""
        if self.session is not None and self.session.open:
            self.mislead(not self.session.heard)
            self.session.connection.close()
            self.look()

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 25.0]))
    def wait(self, seconds: float) -> None:
        self.mislead(seconds > 2.0 and not (self.session is not None and self.session.heard))
        for _ in range(int(seconds * 10)):
            self.case.clock.advance(0.1)
            self.look()

    # --- masters --------------------------------------------------------------------

    @rule(sizes=SIZES)
    def write(self, sizes: list[int]) -> None:
        full, self.disk.full = self.disk.full, False
        self.master.write(*sizes)
        self.disk.full = full

    @rule(
        kind=st.sampled_from(["same", "less", "other", "back"]),
        elsewhere=st.booleans(),
        data=st.data(),
    )
    def another(self, kind: str, elsewhere: bool, data: st.DataObject) -> None:
        """A master is restarted, or another is there, or one is said to be elsewhere."""
        self.close()
        self.case.turn()
        self.look()
        self.session = None
        before, former = self.master, self.former
        self.former = before
        full, self.disk.full = self.disk.full, False
        if kind == "back":
            self.master = former
        elif kind == "same":
            self.master = ModelMaster(log=before.log, author=before.author)
        else:
            log = self.copied(before.log, 0, data.draw(st.integers(0, before.end), "common"))
            log.rewind()
            self.master = ModelMaster(log=log, author=next(self.authors))
            if kind == "other":
                self.master.write(*data.draw(SIZES, "others"))
        self.disk.full = full
        if kind != "back":
            self.habits(data)
        if elsewhere:
            self.address += 1
            self.released, self.gaps = True, 0
            if not (self.failed or self.repairing):
                self.leave_alone(0.0)
            self.compared = self.refetched = False
            address = f"10.0.0.{self.address}:10912"
            self.case.follower.dial(self.case.endpoint, address, self.bounds)
            self.case.turn()
        self.look()
        self.settle(data.draw(st.integers(0, 2), "settles"))

    # --- what goes wrong ---------------------------------------------------------------

    def unheard(self) -> MasterSession | None:
        """A connection that is past its question, and where a whole frame ends."""
        session = self.session
        if session is None or not session.open or session.whole <= (session.start or 0):
            return None
        session.send(session.pending, 1 << 20)
        self.look()
        return session if session.open and self.sync.divergence is None else None

    @rule(size=st.sampled_from([-1, -20, -(2**31), 2**31 - 1, 4 << 20, (4 << 20) - 11]))
    def impossible(self, size: int) -> None:
        """A frame that none can be."""
        session = self.unheard()
        if session is not None:
            header = session.whole.to_bytes(8, "big") + size.to_bytes(4, "big", signed=True)
            held = self.state.is_stop
            session.false(header + b"x" * 100)
            assert not session.open
            self.case.turn()
            assert held or f"frame of {size} bytes" in self.sync.reason
            self.look()

    @rule(
        wrong=st.sampled_from([1, -1, SIZE, -SIZE, -(1 << 61), 1 << 61]),
        size=st.sampled_from([0, 100]),
        times=st.sampled_from([1, 3]),
        grows=st.booleans(),
    )
    def gap(self, wrong: int, size: int, times: int, grows: bool) -> None:
        """Frames that do not go on where the last one ended, each on a connection of its own."""
        for _ in range(times):
            if grows:
                self.write([200])
            if times > 1:
                self.settle(2)
            session = self.unheard()
            if session is not None:
                self.gaps += 1
                session.false(encode_header(session.whole + wrong, size) + b"x" * size)
                assert not session.open
                assert (self.state is SyncState.GAP) is (self.gaps >= 3), self.gaps
                self.look()

    @rule(cut=st.integers(0, 199))
    def bad_record(self, cut: int) -> None:
        """A record that is none, at the end of what is held."""
        session = self.unheard()
        if session is not None and session.whole == self.mine.end == self.mine.confirmed:
            end, body = self.mine.end, b"\1" * 200
            if end + 200 > end - end % SIZE + SIZE:
                return
            self.refetched, self.due = True, 0.0
            if cut:
                session.false(encode_header(end, cut) + body[:cut])
            if session.open:
                session.false(encode_header(end + cut, 200 - cut) + body[cut:])
            assert self.state in (SyncState.DIVERGED, SyncState.DISK_FULL), self.state
            assert self.mine.end == self.mine.confirmed == end
            assert not session.open
            assert self.state is SyncState.DISK_FULL or "bad record" in self.sync.reason
            self.look()
            self.case.turn()
            assert not self.repairing

    @rule(full=st.booleans())
    def fill_disk(self, full: bool) -> None:
        """The slave's disk is full, or has room again."""
        self.disk.full = full

    @precondition(lambda self: self.session is None or not self.session.open)
    @rule(share=st.floats(0, 0.999))
    def rot(self, share: float) -> None:
        """A byte of the slave's log is another one."""
        log = self.mine
        self.case.turn()
        self.look()
        if log.end > log.min_offset and not self.idle:
            at = log.min_offset + int(share * (log.end - log.min_offset))
            file = log.folder.at(at)
            file.view[at - file.start] ^= 0xFF
            self.kept = b""

    # --- the slave ------------------------------------------------------------------

    @rule(share=st.floats(0, 1))
    def flush(self, share: float) -> None:
        log = self.mine
        log.now_flushed(log.flushed + int(share * (log.end - log.flushed)))
        self.look()

    @rule()
    def fail(self) -> None:
        """An fsync fails: that is final for the process, whatever is under way."""
        self.failed = True
        self.sync.fail("fsync of x failed")
        self.case.turn()
        assert self.state is SyncState.FAILED and self.session_over()
        self.attend()
        self.case.passes(LONGEST + 1, 1.0)
        self.look()
        assert self.state is SyncState.FAILED and not self.case.endpoint.waiting
        self.restart(True)

    def session_over(self) -> bool:
        return self.session is None or not self.session.open

    @rule()
    def attend(self) -> None:
        """Both versions of a difference are judged, and a policy is carried out."""
        for done in self.judging:
            done.callback("judged")
        self.judging.clear()
        self.case.turn()
        self.look()
        if not self.repairing:
            return
        policy, divergence, done = self.case.repairs[-1]
        try:
            mine = self.repaired(policy, divergence)
        except Refused as error:
            self.refused = True
            self.leave_alone(LONGEST)
            reason = self.sync.reason.removesuffix(f"; {error}")
            done.errback(error)
            assert self.sync.reason == f"{reason}; {error}"
        else:
            self.mine = self.case.mine = mine
            self.refused, self.released, self.kept = False, True, b""
            self.leave_alone(0.0)
            done.callback("repaired")
        self.look()

    def look_at_repair(self, policy: DivergencePolicy, divergence: Divergence | None) -> None:
        """Nothing is cut that no policy allows, or for a master that has nothing."""
        if self.failed:
            return
        if self.state is SyncState.BELOW_MIN:
            assert policy is DivergencePolicy.REBOOTSTRAP
            assert self.sync.is_bootstrapping or self.settings["policy"] is policy
        else:
            assert self.state in (SyncState.AHEAD, SyncState.DIVERGED)
            assert policy is self.settings["policy"] is not DivergencePolicy.STOP
            assert divergence is not None and divergence is self.sync.divergence
            assert not divergence.master_empty
            assert not self.judged or self.state is SyncState.AHEAD or "; " in self.sync.reason

    def repaired(self, policy: DivergencePolicy, divergence: Divergence | None) -> CommitLog:
        """What the owner of the log makes of it."""
        if policy is DivergencePolicy.REBOOTSTRAP:
            return self.case.log()
        assert divergence is not None
        at = plan_cut(self.mine, divergence, SIZE)
        assert at <= divergence.at
        return self.copied(self.mine, self.mine.min_offset, at)

    @rule(power=st.booleans())
    def restart(self, power: bool) -> None:
        """The slave's process ends, or its machine: then what was not synced is gone."""
        self.end_life()
        start = self.mine.min_offset
        end = max(start, self.mine.flushed) if power else self.mine.end
        self.mine = self.copied(self.mine, start, end)
        self.begin_life()

    def end_life(self) -> None:
        """A stop waits for what is under way, and leaves nothing behind."""
        case = self.case
        stopped = case.follower.stopService()
        case.turn()
        if self.repairing:
            case.assertNoResult(stopped)
            case.repairs[-1][-1].errback(Refused("x", "the store is closed"))
        case.successResultOf(stopped)
        for done in self.judging:
            done.callback("too late")
        self.judging.clear()
        assert self.state is SyncState.STOPPED and self.session_over()
        assert (case.clock.getDelayedCalls(), case.endpoint.waiting) == ([], [])
        assert self.mine.flush_listeners == []
        if self.mine.folder.files:
            last = self.mine.folder.files[-1]
            assert not any(last.view[max(0, self.mine.end - last.start) :])
        self.look()
        self.session = None

    # --- what always holds --------------------------------------------------------------

    def look(self) -> None:
        """What is said is so."""
        session, log, changes = self.session, self.mine, self.sync.taken()
        for before, state in changes:
            assert state in _LAST or state in ENTERED_FROM.get(before, ()), (before, state)
            assert before is not SyncState.FAILED or state is SyncState.STOPPED
            if before in _STOPS and state is SyncState.CONNECTING:
                assert self.released, f"{before} was left"
                self.released = False
        if session is not None:
            first = self.state not in _LAST and session.connection.reports() and not session.seen
            if first and session.asked():
                self.look_at_question()
            self.look_at_reports(session)
            connection = self.sync.connection
            if session.open and connection and log.confirmed > connection.own_end:
                self.gaps = 0
            if session.open and session.at_end_told and session.whole >= log.end:
                assert self.state is SyncState.IN_SYNC or self.state.is_stop, self.state
        if changes and self.state in _STOPS:
            assert self.sync.reason
            self.look_at_stop()
        if self.state in _FOLLOWING:
            assert session is not None and not session.connection.transport.gone
            self.assert_same(session.start, log.end)
            if self.state is SyncState.CATCHING_UP:
                assert not self.sync.is_bootstrapping
            elif changes or log.end % SIZE:
                assert log.end >= (session.told or 0)
        assert self.state is not SyncState.BOOTSTRAPPING or self.sync.is_bootstrapping
        held = content(log, log.min_offset, log.confirmed)
        assert held.startswith(self.kept), "what was confirmed changed"
        self.kept = held
        divergence = self.sync.divergence
        if self.state is SyncState.DIVERGED and divergence is not None:
            assert not self.sync.doubt(divergence.at) and self.sync.doubt(divergence.at + 1)
        else:
            assert not self.sync.doubt(1 << 40)
        assert not (self.repairing and self.case.endpoint.waiting)
        for policy, divergence, _ in self.case.repairs[self.repairs :]:
            self.look_at_repair(policy, divergence)
        self.repairs = len(self.case.repairs)

    def look_at_reports(self, session: MasterSession) -> None:
        """Nothing is reported that was not compared or taken, checked, and flushed if it has to."""
        reports, log = session.connection.reports(), self.mine
        for before, report in pairwise(reports[max(session.seen - 1, 0) :]):
            assert before <= report
            if report > reports[0]:
                assert report <= min(session.partly, log.confirmed)
                assert report <= log.flushed or not self.sync_flush
                self.assert_same(session.start, report)
        session.seen = len(reports)

    def look_at_stop(self) -> None:
        """The state that the slave stopped in is what its log and the master's are."""
        state, log, master, divergence = self.state, self.mine, self.peer, self.sync.divergence
        if state is SyncState.AHEAD:
            assert divergence is not None and self.session is not None
            assert divergence.at == self.session.told < log.end
            assert divergence.master_empty is (self.session.told == 0)
            self.assert_same(divergence.common_from, divergence.at)
        elif state is SyncState.DIVERGED and divergence is not None:
            at = divergence.at
            assert self.session is not None and self.session.start is not None
            assert divergence.common_from >= self.session.start
            assert content(log, at, at + 1) != master.has(at, at + 1)
            self.assert_same(divergence.common_from, at)
        elif state is SyncState.DIVERGED:
            assert self.refetched
        elif state is SyncState.BELOW_MIN:
            assert master.first > log.end or (master.stock and self.misled) or self.parts_at_once()
        elif state is SyncState.UNPROVEN:
            assert self.misled or master.first == log.end or self.parts_at_once()
        elif state is SyncState.LOWER_EPOCH:
            assert master.tells and master.epoch < self.epoch
        elif state is SyncState.GAP:
            assert self.gaps >= 3
        else:
            assert state is SyncState.DISK_FULL and self.disk.full, state

    def parts_at_once(self) -> bool:
        """Whether the first byte of what both have is not the same, or they have nothing."""
        low = max(self.mine.min_offset, self.master.first, 1)
        high = min(self.mine.end, self.master.end)
        return low >= high or content(self.mine, low, low + 1) != self.master.has(low, low + 1)

    # --- where it comes to ----------------------------------------------------------------

    @rule(attended=st.integers(1, 2))
    def settle(self, attended: int) -> None:
        """Nothing gets in the way any more: the slave ends where its log and the master's are, or,
        with 1, where something is to be done about that.
        """
        if self.failed or not attended:
            return
        self.disk.full = False
        self.attend()
        before = self.conclusions
        for _ in range(80):
            self.case.turn()
            self.look()
            session = self.session
            if self.repairing or self.judging:
                if attended == 1:
                    return
                self.attend()
            elif session is None or not session.open:
                over = self.state.is_stop and self.conclusions > before
                if over and (self.state in self.verdicts() or not self.misled):
                    break
                if over:
                    before, self.misled = self.conclusions, False
                self.connect(True)
            elif not session.asked():
                self.case.passes(1)
                self.look()
            elif self.serves_all(session):
                break
        self.look_at_end()

    def serves_all(self, session: MasterSession) -> bool:
        """Whether all that the master has was taken, and nothing came of it but that."""
        if not session.answers and not session.master.stock:
            session.connection.close()
        elif session.answers:
            while session.open and not (session.at_end and not session.pending):
                session.frame(idle=False)
                session.send(1 << 20, 1 << 20)
                self.look()
            session.frame()
        if session.open:
            session.send(1 << 20, 1 << 20)
            self.mine.now_flushed(self.mine.end)
            self.look()
        if session.open and self.state is SyncState.IN_SYNC:
            return True
        if session.open:
            self.case.passes(2.25 if session.answers else 6.25)
        self.look()
        return False

    def look_at_end(self) -> None:
        log, master, session, state = self.mine, self.master, self.session, self.state
        assert state in self.verdicts(), f"{state} ({self.sync.reason}): {self.verdicts()}"
        if state is not SyncState.IN_SYNC:
            divergence = self.sync.divergence
            if self.settings["policy"] is not DivergencePolicy.STOP and not self.refused:
                assert state not in (SyncState.AHEAD, SyncState.DIVERGED) or (
                    divergence is None or divergence.master_empty
                )
            return
        if log.end == log.min_offset:
            assert master.end == 0
            return
        assert session is not None
        assert log.end == master.end and session.connection.reports()[-1] == log.end
        assert self.sync.divergence is None
        assert not self.sync.is_bootstrapping
        if self.copied_from is master and not self.copy_misled:
            assert log.min_offset == self.copy_start

    def verdicts(self) -> set[SyncState]:
        """What may come of these two logs."""
        log, master, session = self.mine, self.master, self.session
        if master.tells and master.epoch < self.epoch:
            return {SyncState.LOWER_EPOCH}
        if log.end == log.min_offset:
            return {SyncState.IN_SYNC}
        if master.end == 0:
            return {SyncState.AHEAD}
        if master.first > log.end:
            return {SyncState.BELOW_MIN}
        start = 0 if session is None or session.start is None else session.start
        low, high = max(log.min_offset, master.first, start), min(log.end, master.end)
        found = {SyncState.AHEAD if master.end < log.end else SyncState.IN_SYNC}
        if low < high and content(log, low, high) != master.has(low, high):
            found = {SyncState.DIVERGED}
        if self.parts_at_once():
            found |= {SyncState.BELOW_MIN, SyncState.UNPROVEN, SyncState.DIVERGED}
        return found

    def teardown(self) -> None:
        if hasattr(self, "sync"):
            self.end_life()
        assert self.case.doCleanups()


class FollowingTests(SynchronousTestCase):
    def test_machine(self) -> None:
        """Whatever comes in whatever order."""
        run_machine(FollowingMachine, count=80, steps=30)
