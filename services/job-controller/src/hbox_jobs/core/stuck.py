"""The message for the user of a gang that did not start completely and whose pods may not be evicted: which rule forbids it, and what the user can do."""

from collections.abc import Iterable

from hbox_common.model import PodBudget

_ADVICE = "the rest of the gang is placed as soon as there is room for it; to free its places instead, delete its pods"


def stuck_text(pods: int, why: str, refusal: str, budgets: Iterable[PodBudget]) -> str:
    """`pods` of them may not be evicted; `why` they are to be; `refusal`: the API server's words; `budgets`: those that select one of them."""
    budget_texts = [
        f"PodDisruptionBudget {one.key} allows {one.allowed} disruptions now (it needs {one.desired} healthy pods and has {one.healthy}): "
        "raise its maxUnavailable or lower its minAvailable"
        for one in budgets
    ]
    return f"EvictionBlocked: {pods} pods have to leave ({why or 'it is unwound'}) and may not: {'; '.join(budget_texts) or refusal}; {_ADVICE}"
