"""What can be wrong with a configuration, with its file and line."""

from __future__ import annotations

from rmqha.errors import ConfigError


class UnknownKey(ConfigError):
    """A key nobody knows.

    @ivar nearest: The nearest known one, or C{""}.
    @ivar where: File and line, or C{--set}.
    """

    key: str
    nearest: str = ""
    where: str = ""

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"{where}unknown key {self.key}{hint}"


class Unsupported(ConfigError):
    """A RocketMQ key that would change safety or meaning, and that we do not support.

    @ivar reason: Why it cannot simply be ignored.
    @ivar where: File and line, or C{--set}.
    """

    key: str
    value: str
    reason: str
    where: str = ""

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{where}{self.key}={self.value} is not supported: {self.reason}"


class MalformedLine(ConfigError):
    """A line, or a C{--set}, that is not C{key=value}.

    @ivar where: File and line, or C{--set}.
    """

    sentence = "{where}: {reason}"
    reason: str
    where: str


class ConfigUnreadable(ConfigError):
    """The configuration file cannot be read.

    @ivar reason: The operating system's text.
    """

    sentence = "{path}: {reason}"
    path: str
    reason: str


class ConfigProblems(ConfigError):
    """All that is wrong with a configuration, at once.

    @ivar problems: One L{ConfigError} each, in the order of the file.
    """

    problems: tuple[ConfigError, ...]

    def __str__(self) -> str:
        return "; ".join(str(problem) for problem in self.problems)
