"""Between Kubernetes' objects and the core's values."""
