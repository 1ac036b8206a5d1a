"""Kinds and fields that a simulation reads and no service does: `hbox_common.kube` has the rest."""

import msgspec

from hbox_common import kube


class _Slim(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    pass


# --- Kubernetes


class DisruptionBudgetSpec(_Slim, frozen=True, gc=False):
    selector: kube.LabelSelector = kube.LabelSelector()


class DisruptionBudgetStatus(_Slim, frozen=True, gc=False):
    disruptions_allowed: int = 0


class PodDisruptionBudget(kube.KubeObject, frozen=True, gc=False):
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


# --- HBox's own


class FabricSpec(_Slim, frozen=True, gc=False):
    age_seconds: float = 0.0  #: since the HyperNodes were confirmed
    max_age_seconds: float = 600.0  #: as the scheduler's setting fabric_max_age_s
    degraded_rails: dict[str, list[int]] = {}  #: by node, as in the output of `hbox topo gaps -o json`


class SimulationSpec(_Slim, frozen=True, gc=False):
    cycles: int = 1
    requeue_evicted: bool | None = None  #: absent = where there is more than one cycle
    age_seconds: dict[str, float] = {}
    before_cycle_wait_seconds: float = 0.0
    fabric: FabricSpec = FabricSpec()


class Simulation(kube.KubeObject, frozen=True, gc=False):
    spec: SimulationSpec = SimulationSpec()
