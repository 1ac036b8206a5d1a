from ..jobs.conftest import bus, kube, kubeconfig, nats

__all__ = ["bus", "kube", "kubeconfig", "nats"]
