"""A Kubernetes API server in memory: `ApiServer`."""

from .server import ApiServer

__all__ = ["ApiServer"]
