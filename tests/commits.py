"""Checks the subjects of commits, `component: imperative ...` with one component and at most 72 characters. `make check` runs it on all commits after
`SINCE`."""

import re
import subprocess

#: The last commit before the rule.
SINCE = "ded02063"
MAX_SUBJECT = 72
_SUBJECT = re.compile(r"[a-z][a-z0-9.-]*: [a-z`].*[^.]")


def main() -> int:
    """Print each subject that breaks the rule; 1 if there is one. A checkout without the history has nothing to check."""
    log = subprocess.run(
        ["git", "log", "--no-merges", "--format=%h %s", f"{SINCE}..HEAD"], capture_output=True, text=True, check=False
    )
    wrong = 0
    for line in log.stdout.splitlines():
        commit, _, subject = line.partition(" ")
        if len(subject) > MAX_SUBJECT or not _SUBJECT.fullmatch(subject):
            wrong += 1
            print(f"{commit}: {subject!r}: write `component: imperative ...`, at most {MAX_SUBJECT} characters")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
