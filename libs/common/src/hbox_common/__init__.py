"""Model, events, bus, Kubernetes access, store, telemetry and runtime shared by every HBox service."""
