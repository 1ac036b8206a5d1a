from ..jobs.conftest import bus, kube, kubeconfig

__all__ = ["bus", "kube", "kubeconfig"]
