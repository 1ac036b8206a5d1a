"""The emulated world: a Kubernetes API server, kubelets, traces."""
