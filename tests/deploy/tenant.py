"""A tenant's pod on a node: the command line with the pod's own service account, and the pages that the pod's network reaches."""

from __future__ import annotations

import json
import uuid
from typing import Any

from .cluster import IMAGE, NAMESPACE, TENANT, Cluster, gang, until

ACCOUNT, POD = "reader", "reads"
#: Jobs of the other tenant, each a PodGroup with two pods.
OTHERS = 40
PAGES = ("metrics", "metrics/queues", "metrics/cards", "readyz", "healthz")

_FETCH = """
import sys, urllib.error, urllib.request
for url in sys.argv[1:]:
    try:
        with urllib.request.urlopen(url, timeout=10) as page:
            print(url, page.status, page.read().decode())
    except urllib.error.HTTPError as e:
        print(url, e.code, e.read().decode())
    except OSError as e:
        print(url, "no answer", e)
"""


class Tenant:
    """A pod in the tenant's namespace, whose account may read PodGroups and pods there."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": TENANT}})
        cluster.kubectl(
            "create", "rolebinding", ACCOUNT, "-n", TENANT, "--clusterrole=view", f"--serviceaccount={TENANT}:{ACCOUNT}"
        )
        container = {"name": "main", "image": IMAGE, "command": ["sleep", "3600"]}
        spec = {"serviceAccountName": ACCOUNT, "containers": [container], "terminationGracePeriodSeconds": 0}
        about = {"name": POD, "namespace": TENANT}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
        cluster.kubectl("wait", "-n", TENANT, "--for=condition=Ready", f"pod/{POD}", "--timeout=60s", timeout_s=90)

    def run(self, *words: str) -> str:
        """Standard output and standard error, one behind the other, whatever the exit status."""
        command = ("exec", "-n", TENANT, POD, "--", "sh", "-c", '"$@" 2>&1 || true', "sh", *words)
        return self._cluster.kubectl(*command, timeout_s=120)

    def hbox(self, *words: str) -> str:
        return self.run("hbox", *words)

    def pages(self) -> str:
        """All pages of all of HBox's pods that need no credentials."""
        addresses = [pod["status"]["podIP"] for pod in self._cluster.pods(NAMESPACE, "-l", "app.kubernetes.io/instance=hbox")]
        return self.run("python3", "-c", _FETCH, *(f"http://{ip}:8080/{page}" for ip in addresses for page in PAGES))

    def revoke(self) -> None:
        self._cluster.kubectl("delete", "rolebinding", ACCOUNT, "-n", TENANT)

    def clear(self) -> None:
        self._cluster.kubectl("delete", "pod,serviceaccount", "-n", TENANT, POD, ACCOUNT, "--ignore-not-found", check=False)


class Others:
    """Another tenant's namespace and jobs that wait there, whose names all contain `mark`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.mark = f"planted{uuid.uuid4().hex[:8]}"
        self.namespace, self.job = f"{self.mark}-space", f"{self.mark}-job-0"
        items: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}]
        for number in range(OTHERS):
            items += gang(f"{self.mark}-job-{number}", members=2, cards=1000, image=IMAGE, namespace=self.namespace)
        self.names = len(items)
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        cluster.kubectl("apply", "-f", "-", stdin=text, timeout_s=180)
        until(
            self._explained,
            timeout_s=120,
            what=lambda: cluster.kubectl("get", "pods", "-n", self.namespace, "-o", "yaml")[-3000:],
        )

    def _explained(self) -> bool:
        """Whether every pod has a reason."""
        pods = self._cluster.pods(self.namespace)
        return all(pod["status"].get("conditions") for pod in pods)

    def clear(self) -> None:
        self._cluster.kubectl("delete", "namespace", self.namespace, "--timeout=120s", timeout_s=150, check=False)
