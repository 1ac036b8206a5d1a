"""PodDisruptionBudgets and the HBox pods that they select: the choice of victims needs to know which pods may not be evicted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hbox_common.model import PodBudget, Selector, selects


@dataclass(frozen=True, slots=True)
class BudgetView:
    """One version of one budget. `selector` None: it selects no pod."""

    budget: PodBudget
    selector: Selector | None


class Budgets:
    """By namespace. Changes of who is selected are the caller's to spread: `put` and `gone` say whether there are any."""

    def __init__(self) -> None:
        self._in: dict[str, dict[str, BudgetView]] = {}

    def put(self, view: BudgetView) -> bool:
        """A budget as it is now. Returns whether it selects other pods than before."""
        known = self._in.setdefault(view.budget.namespace, {})
        before = known.get(view.budget.name)
        known[view.budget.name] = view
        return before is None or before.selector != view.selector

    def gone(self, namespace: str, name: str) -> bool:
        """It was deleted. Returns whether it was known."""
        known = self._in.get(namespace, {})
        found = known.pop(name, None)
        if not known:
            self._in.pop(namespace, None)
        return found is not None

    def of(self, namespace: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Names of the budgets that select such a pod."""
        return tuple(sorted(name for name, view in self._in.get(namespace, {}).items() if selects(view.selector, labels)))

    def named(self, namespace: str, names: Iterable[str]) -> list[PodBudget]:
        """Those of them that there are."""
        known = self._in.get(namespace, {})
        return [known[name].budget for name in names if name in known]

    def all(self) -> list[PodBudget]:
        return [view.budget for known in self._in.values() for view in known.values()]
