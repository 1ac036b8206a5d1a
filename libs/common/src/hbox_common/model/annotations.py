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
