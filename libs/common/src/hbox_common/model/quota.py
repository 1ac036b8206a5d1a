"""ResourceQuotas of namespaces as checked by `enqueue`. Quotas of cards and their memory: `cardquota`."""

from dataclasses import dataclass, field

from .resources import Resources


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """The limits of a namespace's requests (`hard`), and its present requests (`used`); by quota key, such as requests.cpu, in base units."""

    namespace: str
    name: str
    hard: Resources
    used: Resources = field(default_factory=dict)
