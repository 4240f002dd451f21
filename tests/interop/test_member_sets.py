"""The same things befall sets of each kind, by who is in them and who leads."""

from __future__ import annotations

from tests.interop import set_cases


class OursAndJavaTests(set_cases.LateScenarios):
    """Ours leads, Java's follows."""

    roles = "our master, a Java member"
    letters = "OJ"


class JavaAndOursTests(set_cases.SetScenarios):
    """Java's leads, ours follows."""

    roles = "a Java master, a member of ours"
    letters = "JO"


class TwoOfOursTests(set_cases.LateScenarios):
    roles = "two members of ours"
    letters = "OO"


class ThreeOfOursTests(set_cases.LateScenarios):
    roles = "three members of ours"
    letters = "OOO"


class TwoOfOursAndJavaTests(set_cases.LateScenarios):
    """Ours leads, one of each follows."""

    roles = "our master, a member of ours, a Java member"
    letters = "OOJ"


class OursAndTwoJavasTests(set_cases.LateScenarios):
    """Ours leads, Java's follow."""

    roles = "our master, two Java members"
    letters = "OJJ"
