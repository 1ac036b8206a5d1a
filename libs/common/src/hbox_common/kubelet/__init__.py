"""What a node's kubelet says of itself on its unix socket: `podresources` are its messages, `grpc` and `protobuf` how they travel."""

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
