"""The parts of the official client that find the way in. A module of its own so that who forks many processes can import it before: it is 18 MiB."""

from kubernetes.aio import client, config

__all__ = ["client", "config"]
