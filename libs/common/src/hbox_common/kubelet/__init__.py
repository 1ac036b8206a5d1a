"""The kubelet's API on its node's unix socket: `podresources` has the messages, `grpc` and `protobuf` the transport."""

from .grpc import Call, GrpcCode, GrpcServer, Refused, StaysOpen, call, listening
from .podresources import (
    ALLOCATABLE,
    LIST,
    AllocatableResources,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    PodResources,
    decode_allocatable,
    decode_list,
    encode_allocatable,
    encode_list,
)

__all__ = [
    "ALLOCATABLE",
    "LIST",
    "AllocatableResources",
    "Call",
    "ContainerDevices",
    "ContainerMemory",
    "ContainerResources",
    "GrpcCode",
    "GrpcServer",
    "PodResources",
    "Refused",
    "StaysOpen",
    "call",
    "decode_allocatable",
    "decode_list",
    "encode_allocatable",
    "encode_list",
    "listening",
]
