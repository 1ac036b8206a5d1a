"""Exemptions: findings that are recorded and lead to nothing, for a named owner and until a date."""

from collections.abc import Mapping
from dataclasses import dataclass

from .finding import Finding


@dataclass(frozen=True, slots=True)
class Exemption:
    """Empty selectors match everything, but one at least is set."""

    owner: str
    reason: str
    until: float  #: seconds since the epoch; an exemption always ends
    node: str = ""
    label: str = ""  #: KEY or KEY=VALUE of the node
    check: str = ""  #: the finding's kind, the incident's kind, or kind-code
    code: str = ""

    def covers(self, node: str, labels: Mapping[str, str], finding: Finding, kind: str) -> bool:
        if not (self.node or self.label or self.check or self.code):
            return False
        key, has_value, value = self.label.partition("=")
        return (
            self.node in ("", node)
            and (not key or (labels.get(key) == value if has_value else key in labels))
            and self.check
            in ("", finding.kind, kind, f"{finding.kind}-{finding.code}", f"{finding.kind}:{finding.code}", finding.code)
            and self.code in ("", finding.code)
        )
