"""Why a change of roles does not go on."""

from __future__ import annotations

from rmqha.errors import RmqhaError


class SwitchoverError(RmqhaError):
    """A change of roles cannot begin, or stands still."""


class PairUnfit(SwitchoverError):
    """Two brokers cannot change their roles."""

    sentence = "the roles cannot be changed: {reason}"
    reason: str


class NotSeen(SwitchoverError):
    """What a step is for did not come in time."""

    sentence = "not within {seconds:g} s: {wanted}; {seen}"
    wanted: str
    seconds: float
    seen: str


class ActFailed(SwitchoverError):
    """A command that was given for a step failed."""

    sentence = "the command of {option} failed: {ended}"
    option: str
    ended: str


class Interrupted(SwitchoverError):
    """Somebody ended a change of roles while a command ran, which was waited for."""

    sentence = "interrupted: run this again to go on, or with --back"
