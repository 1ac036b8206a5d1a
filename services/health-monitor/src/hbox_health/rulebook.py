"""The tables and policies in force: as shipped and set, with an operator's files in their place. Files are read again when they change; files that cannot be
used leave the former ones in force. After a start there are none: then what is shipped and set is in force, and nothing that was repaired returns."""

import hashlib
from dataclasses import replace
from pathlib import Path

from hbox_common.errors import InvalidRequest
from hbox_common.events import PolicyValue
from hbox_common.health.gatejob import manifest_of

from .core.judge.courses import Policies
from .core.judge.policyfile import parse_policies, values_of
from .core.judge.rules import BadRules, Rules
from .data import FILES, read_tables, shipped_rules

POLICIES = "policies.yaml"
#: A Job of Kubernetes that runs on hardware before it returns.
GATE_JOB = "gate-job.yaml"


class RuleBook:
    """`settings`: the policies without a file. The folder may be missing or empty: then what is shipped and set is in force."""

    def __init__(self, folder: Path | None, settings: Policies) -> None:
        self._folder, self._settings = folder, settings
        self._texts: dict[str, str] | None = None  #: in force; None: none was read since the start
        self._seen: dict[str, str] | None = {}  #: read last
        self.rules: Rules = shipped_rules()
        self.policies = settings
        self.fault = ""
        self.read()

    def read(self) -> bool:
        """Read the folder. True: other rules are in force, or the fault is another."""
        if self._folder is None:
            return False
        before = self.policies.version, self.fault
        try:
            texts = _read(self._folder)
        except BadRules as e:
            self._seen = None
            self._refuse(str(e))
            return self.fault != before[1]
        if texts == self._seen:
            return False
        self._seen = texts
        try:
            self._use(texts)
            self.fault = ""
        except BadRules as e:
            self._refuse(str(e))
        return (self.policies.version, self.fault) != before

    def _refuse(self, fault: str) -> None:
        self.fault = fault
        if self._texts is None:
            self.policies = replace(self._settings, unread=fault)

    def _use(self, texts: dict[str, str]) -> None:
        rules = read_tables(texts)
        policies = parse_policies(texts[POLICIES], self._settings) if POLICIES in texts else self._settings
        if GATE_JOB in texts:
            try:
                policies = replace(policies, job=manifest_of(texts[GATE_JOB]))
            except InvalidRequest as e:
                raise BadRules(f"{GATE_JOB}: {e.message}") from None
        version = self._settings.version
        if texts:
            version += f"+{hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:8]}"
        self.rules, self.policies, self._texts = rules, replace(policies, version=version), texts

    @property
    def tables(self) -> dict[str, str]:
        """Where each table comes from."""
        own = {name: str(self._folder / name) for name in self._texts or () if self._folder and name != POLICIES}
        return {**dict.fromkeys(FILES, "shipped"), GATE_JOB: "none", **own}

    @property
    def values(self) -> tuple[PolicyValue, ...]:
        """Each policy with its source."""
        default, settings = dict(values_of(Policies())), dict(values_of(self._settings))
        return tuple(
            PolicyValue(name=name, value=f"{value:g}", source=_source(value, settings.get(name), default.get(name)))
            for name, value in values_of(self.policies)
        )


def _source(value: float, setting: float | None, default: float | None) -> str:
    if value != setting:
        return POLICIES
    return "default" if setting == default else "setting"


def _read(folder: Path) -> dict[str, str]:
    """The files of the folder that health-monitor knows. Raises BadRules."""
    texts: dict[str, str] = {}
    for name in (*FILES, POLICIES, GATE_JOB):
        try:
            texts[name] = (folder / name).read_text()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as e:
            raise BadRules(f"{folder / name}: {e}") from None
    return texts
