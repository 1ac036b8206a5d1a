"""What each service may do in a cluster: a list of its own beside the files of `hbox_cli.platform.rbac`, so that a right that is added there by mistake
is seen. Each line: namespace (`*`: all, and what has none), API group (`core`), resource, names (`*`: any), verbs.
"""

from typing import NamedTuple


class Right(NamedTuple):
    namespace: str  #: empty: all
    group: str
    resource: str  #: "pods/binding"
    name: str  #: empty: any
    verb: str


_RIGHTS = {
    "binder": """
        *            core                   nodes                   *               get list watch patch
        *            core                   persistentvolumeclaims  *               get patch
        *            core                   persistentvolumes       *               get list patch
        *            core                   pods                    *               get
        *            core                   pods/binding            *               create
        *            core                   pods/eviction           *               create
        *            core                   pods/status             *               patch
        *            storage.k8s.io         storageclasses          *               get
        hbox-system  coordination.k8s.io    leases                  *               create
        hbox-system  coordination.k8s.io    leases                  binder          get update
        """,
    "admission": """
        *            core                   namespaces              *               list watch
        *            scheduling.volcano.sh  queues                  *               list watch
        """,
    "console": """
        *            authentication.k8s.io  tokenreviews            *               create
        *            authorization.k8s.io   subjectaccessreviews    *               create
        kube-system  core                   configmaps              extension-apiserver-authentication  get
        """,
    "health-monitor": """
        hbox-system  coordination.k8s.io    leases                  *               create
        hbox-system  coordination.k8s.io    leases                  health-monitor  get update
        """,
    "node-agent": "",
    "job-controller": """
        *            core                   events                  *               get create patch
        *            core                   namespaces              *               list watch
        *            core                   persistentvolumeclaims  *               list watch patch
        *            core                   persistentvolumes       *               list watch
        *            core                   pods                    *               list watch
        *            core                   pods/status             *               patch
        *            coordination.k8s.io    leases                  kube-scheduler  get
        *            coordination.k8s.io    leases                  volcano         get
        *            policy                 poddisruptionbudgets    *               list watch
        *            scheduling.k8s.io      priorityclasses         *               list watch
        *            scheduling.volcano.sh  podgroups               *               get list watch patch
        *            scheduling.volcano.sh  podgroups/status        *               patch
        *            storage.k8s.io         storageclasses          *               list watch
        *            apps                          deployments                 *  get list watch
        *            apps                          replicasets                 *  get list watch
        *            apps                          statefulsets                *  get list watch
        *            argoproj.io                   workflows                   *  get list watch
        *            batch                         cronjobs                    *  get list watch
        *            batch                         jobs                        *  get list watch
        *            jobset.x-k8s.io               jobsets                     *  get list watch
        *            kubeflow.org                  jaxjobs                     *  get list watch
        *            kubeflow.org                  mpijobs                     *  get list watch
        *            kubeflow.org                  mxjobs                      *  get list watch
        *            kubeflow.org                  notebooks                   *  get list watch
        *            kubeflow.org                  paddlejobs                  *  get list watch
        *            kubeflow.org                  pytorchjobs                 *  get list watch
        *            kubeflow.org                  tfjobs                      *  get list watch
        *            kubeflow.org                  xgboostjobs                 *  get list watch
        *            leaderworkerset.x-k8s.io      leaderworkersets            *  get list watch
        *            ray.io                        rayclusters                 *  get list watch
        *            ray.io                        rayjobs                     *  get list watch
        *            ray.io                        rayservices                 *  get list watch
        *            scheduler.grove.io            podgangs                    *  get list watch
        *            scheduling.k8s.io             podgroups                   *  get list watch
        *            scheduling.k8s.io             podgroups/status            *  patch
        *            scheduling.x-k8s.io           podgroups                   *  get list watch
        *            serving.knative.dev           revisions                   *  get list watch
        *            sparkoperator.k8s.io          scheduledsparkapplications  *  get list watch
        *            sparkoperator.k8s.io          sparkapplications           *  get list watch
        *            tekton.dev                    pipelineruns                *  get list watch
        *            tekton.dev                    taskruns                    *  get list watch
        *            trainer.kubeflow.org          trainjobs                   *  get list watch
        hbox-system  coordination.k8s.io    leases                  *               create
        hbox-system  coordination.k8s.io    leases                  job-controller  get update
        """,
    "quota-ledger": """
        *            core                   resourcequotas          *               list watch
        *            scheduling.volcano.sh  queues                  *               list watch
        *            scheduling.volcano.sh  queues/status           *               patch
        default      core                   events                  *               get create patch
        hbox-system  coordination.k8s.io    leases                  *               create
        hbox-system  coordination.k8s.io    leases                  quota-ledger    get update
        """,
    "scheduler-core": """
        hbox-system  coordination.k8s.io    leases                  *               create
        hbox-system  coordination.k8s.io    leases                  scheduler-core  get update
        """,
    "topology-collector": """
        *            core                   nodes                   *               list watch
        *            metrics.k8s.io         nodes                   *               list
        *            topology.volcano.sh    hypernodes              *               list watch
        *            topology.node.k8s.io   noderesourcetopologies  *               list watch
        *            nodeinfo.volcano.sh    numatopologies          *               list watch
        default      core                   events                  *               get create patch
        """,
}


def _read(lines: str) -> frozenset[Right]:
    found = set()
    for line in lines.strip().splitlines():
        namespace, group, resource, name, *verbs = line.split()
        right = Right(namespace.strip("*"), "" if group == "core" else group, resource, name.strip("*"), "")
        found |= {right._replace(verb=verb) for verb in verbs}
    return frozenset(found)


#: By service.
RIGHTS = {service: _read(lines) for service, lines in _RIGHTS.items()}
