"""Names that HBox reads and writes on Kubernetes objects."""

GROUP_NAME = "scheduling.k8s.io/group-name"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
PREEMPTABLE = "volcano.sh/preemptable"  #: "false" on a pod or PodGroup keeps it from being evicted for others

CLAIM = "hbox.io/claim"
CLAIM_GENERATION = "hbox.io/claim-gen"  #: moved to make older bindings fail on their resourceVersion
CARDS = "hbox.io/cards"
CORDONED_BY = "hbox.io/cordoned-by"
CORDON_REASON = "hbox.io/cordon-reason"
RUN_SECONDS = "hbox.io/run-seconds"  #: the sandbox's kubelets end a pod after so long

GPU_MODEL_LABEL = "nvidia.com/gpu.product"
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"  #: MiB, as GPU feature discovery writes it
HAMI_REGISTER = "hami.io/node-nvidia-register"
USE_GPU_TYPE = "nvidia.com/use-gputype"  #: models a pod wants, comma separated, as HAMi reads it

NETWORK_TOPOLOGY = "hbox.io/network-topology"  #: none, bestEffort or singleSwitch, on a PodGroup
KUEUE_REQUIRED = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
KAI_REQUIRED = "kai.scheduler/topology-required-placement"
KAI_PREFERRED = "kai.scheduler/topology-preferred-placement"

#: What a gang may say of the fabric besides `networkTopology`.
TOPOLOGY_NOTES = (NETWORK_TOPOLOGY, KUEUE_REQUIRED, KUEUE_PREFERRED, KUEUE_UNCONSTRAINED, KAI_REQUIRED, KAI_PREFERRED)
