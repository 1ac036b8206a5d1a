"""Every reason for which a job may wait: code, stage, usual outcome and owner, and texts in English and Chinese.

A text has placeholders in braces, filled by an explanation's `facts`; a test renders every text with facts of every placeholder.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hbox_common.model.explanation import Outcome, Owner, Stage


@dataclass(frozen=True, slots=True)
class Code:
    """One reason. `label`: the node label whose count it explains; "" = it is not about single nodes. `en`, `zh`: one line; `cause`, `fix`: of its page."""

    name: str
    stage: Stage
    outcome: Outcome
    owner: Owner
    en: str
    zh: str
    cause: str
    fix: str
    label: str = ""


def _by_name(codes: Iterable[Code]) -> Mapping[str, Code]:
    found: dict[str, Code] = {}
    for code in codes:
        assert code.name not in found, code.name
        found[code.name] = code
    return found


CODES: Mapping[str, Code] = _by_name(
    (
        Code(
            "CardsInUse",
            Stage.DEVICE,
            Outcome.WAIT,
            Owner.SYSTEM,
            "all {total} cards are in use{by}; it needs {cards}",
            "全部 {total} 张卡均在使用中{by}；需要 {cards} 张",
            "Every card that the pod may use is held by a running pod, and the policy allows no eviction for this job.",
            "Wait until a job ends, or ask the queue's administrator for a higher deserved share.",
            label="CardsInUse",
        ),
    )
)


def code_of(name: str) -> Code | None:
    """The code of this name, in any case; None if there is none."""
    return CODES.get(name) or next((code for code in CODES.values() if code.name.lower() == name.lower()), None)
