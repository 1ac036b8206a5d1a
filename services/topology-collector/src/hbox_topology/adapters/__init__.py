"""Between Kubernetes' objects, the bus, and the core's values."""
