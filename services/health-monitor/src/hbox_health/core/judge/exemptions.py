"""Whether an exemption covers a finding."""

from collections.abc import Mapping

from hbox_common.model.healthorder import Exemption

from .finding import Finding


def covers(exemption: Exemption, node: str, labels: Mapping[str, str], finding: Finding, kind: str) -> bool:
    """`kind`: of the finding's incident."""
    if not (exemption.node or exemption.label or exemption.check or exemption.code):
        return False
    key, has_value, value = exemption.label.partition("=")
    return (
        exemption.node in ("", node)
        and (not key or (labels.get(key) == value if has_value else key in labels))
        and exemption.check
        in ("", finding.kind, kind, f"{finding.kind}-{finding.code}", f"{finding.kind}:{finding.code}", finding.code)
        and exemption.code in ("", finding.code)
    )
