"""ResourceQuotas of namespaces, as far as `enqueue` looks at them. What they say of cards and their memory is `cardquota`'s."""

from dataclasses import dataclass, field

from .resources import Resources


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """What a namespace may ask for in all (`hard`), and what it has asked for already (`used`); by quota key, such as requests.cpu, in base units."""

    namespace: str
    name: str
    hard: Resources
    used: Resources = field(default_factory=dict)
