"""Published results of FGD, and the upper bound of any placement: allocated cards in percent, means of ten seeds.

FGD and BestFit: Weng et al., "Beware of Fragmentation" (USENIX ATC'23), the results that came with its simulator (hkust-adsl/kubernetes-scheduler-simulator,
`experiments/analysis/expected_results`). The bound: the linear programme of an omniscient placement of all that has arrived, per class of
nodes, with cpu, memory and cards but without the coupling within a node; computed for one order of pods.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """At 100 % and 130 % arrived. `fragments_100`: FGD's F, in percent of all cards."""

    fgd_100: float
    fgd_130: float
    fragments_100: float
    bestfit_100: float
    bestfit_130: float
    bound_100: float
    bound_130: float


PUBLISHED: Mapping[str, Published] = {
    "default": Published(95.23, 95.39, 4.73, 92.86, 93.08, 96.91, 99.90),
    "cpu050": Published(95.00, 95.21, 4.94, 93.56, 93.79, 96.93, 99.89),
    "cpu100": Published(95.21, 95.35, 4.75, 93.26, 93.44, 96.91, 99.87),
    "cpu200": Published(94.82, 95.05, 5.11, 92.15, 92.40, 96.90, 99.89),
    "cpu250": Published(93.20, 93.41, 6.77, 91.21, 91.45, 96.92, 99.91),
    "gpushare40": Published(93.96, 94.15, 5.98, 91.44, 91.69, 95.62, 99.20),
    "gpushare60": Published(91.25, 91.40, 8.68, 89.06, 89.36, 93.33, 96.98),
    "gpushare80": Published(89.08, 89.30, 10.78, 86.66, 87.01, 91.43, 94.50),
    "gpushare100": Published(86.64, 86.90, 13.25, 84.62, 85.01, 89.11, 91.50),
    "gpuspec10": Published(94.66, 94.95, 5.13, 93.10, 93.30, 96.86, 99.89),
    "gpuspec20": Published(94.66, 94.84, 5.27, 88.46, 93.30, 96.91, 99.90),
    "gpuspec25": Published(93.91, 94.74, 5.32, 85.67, 93.23, 96.88, 99.90),
    "gpuspec33": Published(87.84, 94.55, 7.47, 80.39, 93.09, 96.35, 99.79),
    "multigpu20": Published(95.53, 95.65, 4.39, 93.73, 93.93, 97.32, 100.00),
    "multigpu30": Published(96.36, 96.46, 3.57, 94.57, 94.72, 97.67, 100.00),
    "multigpu40": Published(96.91, 96.99, 3.05, 95.10, 95.23, 98.01, 100.00),
    "multigpu50": Published(97.09, 97.18, 2.77, 95.62, 95.74, 98.31, 100.00),
}
