"""Change the modules that the promises rest on, one operator at a time, and say which changes no
test notices.

C{make mutants ONLY=epoch} does it for one of them.  A change that is in C{tests/mutants.md} is
known to change nothing.  It works in a copy of the project, and takes hours for all.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

KNOWN = ROOT / "tests" / "mutants.md"

MODULES = {
    "ha/master/ledger": "tests/ha/master/test_ledger.py",
    "ha/master/transfer": "tests/ha/master/test_transfer.py",
    "ha/master/slots": "tests/ha/master/test_slots.py",
    "ha/epoch": "tests/ha/test_epoch.py",
    "ha/master_epoch": "tests/ha/test_master_epoch.py",
    "ha/promotion": "tests/ha/test_promotion.py",
    # Nearly all that is there is about it.
    "ha/slave/follow_state": "tests/ha/slave",
    "ha/slave/probe": "tests/ha/slave/test_probe.py",
    "ha/elected/in_sync": "tests/ha/elected/test_in_sync.py tests/ha/elected/test_set_rules.py",
    "ha/elected/members": "tests/ha/elected/test_proof.py tests/ha/elected/test_member_dialect.py",
    "store/log/recovery": "tests/store/log/test_recovery.py",
    "store/log/retention": "tests/store/log/test_retention.py",
    "store/log/truncate": "tests/store/log/test_truncate.py",
    "wire/ha_frame": "tests/wire/test_ha_frame.py",
}
"""The modules, and the tests that are to notice."""

CHANGES = (
    "Gt_GtE|GtE_Gt|Lt_LtE|LtE_Lt|Gt_LtE|LtE_Gt|Lt_GtE|GtE_Lt|Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is|"
    "In_NotIn|NotIn_In"
)
"""The comparisons that are turned round, or moved by one."""

LEFT_OUT = (
    # Unions of annotations, and operators that no test takes for each other.
    r"core/ReplaceBinaryOperator_(?!(Add_Sub|Sub_Add)$).*",
    rf"core/ReplaceComparisonOperator_(?!({CHANGES})$).*",
    r"core/ReplaceUnaryOperator_.*",
    r"core/RemoveDecorator",
    r"core/ExceptionReplacer",
)

LONGEST = 60.0
"""Seconds after which a change counts as noticed: most make a loop that does not end."""


def survivors(module: str, tests: str) -> tuple[int, list[str]]:
    """Change one module: how many changes were made, and those that no test noticed."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        copy = Path(name) / "rmqha"
        left = shutil.ignore_patterns(".*", "_trial_temp*", "_build", "build", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=left)
        command = f"{sys.executable} -m pytest -q -x -p no:cacheprovider {tests}"
        config, session = copy / "mutants.toml", copy / "mutants.sqlite"
        config.write_text(
            "[cosmic-ray]\n"
            f'module-path = "rmqha/{module}.py"\n'
            f"timeout = {LONGEST}\n"
            "excluded-modules = []\n"
            f'test-command = "{command}"\n'
            "[cosmic-ray.distributor]\n"
            'name = "local"\n'
            "[cosmic-ray.filters.operators-filter]\n"
            f"exclude-operators = {json.dumps(list(LEFT_OUT))}\n",
            encoding="utf-8",
        )
        # Tests that fail as it is would notice everything.  What they compile stays.
        subprocess.run(command.split(), cwd=copy, check=True, env=environment(copy, compiled=True))
        for each in (copy / "rmqha" / module).parent.glob(f"__pycache__/{Path(module).name}.*"):
            each.unlink()
        for step in (
            ("cosmic-ray", "init", config, session),
            ("cr-filter-operators", session, config),
            ("cosmic-ray", "exec", config, session),
        ):
            program = Path(sys.executable).with_name(step[0])
            subprocess.run([program, *step[1:]], cwd=copy, check=True, env=environment(copy))
        dump = [Path(sys.executable).with_name("cosmic-ray"), "dump", session]
        found = subprocess.run(dump, cwd=copy, check=True, capture_output=True, text=True).stdout
        lines = (copy / "rmqha" / f"{module}.py").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in found.splitlines()]
    done = [(item, result) for item, result in rows if result["worker_outcome"] != "skipped"]
    return len(done), [
        told(module, mutation, lines)
        for item, result in done
        if result["test_outcome"] == "survived"
        for mutation in item["mutations"]
    ]


def environment(copy: Path, *, compiled: bool = False) -> dict[str, str]:
    """That of the tests: they import the copy, and try as few random cases as C{make test-core},
    the same ones each time; and what they import is kept compiled, or not.
    """
    kept = "" if compiled else "1"
    quick = {"RMQHA_TESTS": "core", "HYPOTHESIS_PROFILE": "mutants"}
    return {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": kept, **quick}


def told(module: str, mutation: dict[str, object], lines: list[str]) -> str:
    """A change, as C{tests/mutants.md} has it: by the text of its line, which outlives others."""
    line, _ = mutation["start_pos"]  # type: ignore[misc]
    operator = str(mutation["operator_name"]).removeprefix("core/")
    return f"{module}: `{lines[line - 1].strip()}`: {operator}"


def main(names: list[str]) -> int:
    """Change the modules that are named, or all: 1 if a change is neither noticed nor known."""
    known = KNOWN.read_text(encoding="utf-8")
    chosen = {each: MODULES[each] for each in MODULES if not names or each.split("/")[-1] in names}
    new = 0
    for module, tests in chosen.items():
        count, alive = survivors(module, tests)
        unknown = [each for each in alive if each not in known]
        new += len(unknown)
        print(f"{module}: {count} changes, {len(alive)} not noticed, {len(unknown)} not known")
        for each in unknown:
            print(f"  {each}")
    return 1 if new or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
