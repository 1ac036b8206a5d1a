"""The audit: the cluster and the ledger are read again from their owners, and the platform's promises are checked on what they say.

It shares the nouns with the services and none of their code: the sums are done here, anew. `reading` gets what the pure part judges.
"""

from .checks import Audit, audit
from .cluster import AuditCard, AuditGang, AuditNode, AuditPod, read_gang, read_node, read_pod
from .published import Published, published_of

__all__ = [
    "Audit",
    "AuditCard",
    "AuditGang",
    "AuditNode",
    "AuditPod",
    "Published",
    "audit",
    "published_of",
    "read_gang",
    "read_node",
    "read_pod",
]
