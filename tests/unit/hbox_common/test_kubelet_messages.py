"""The kubelet's messages and how they travel."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.kubelet import (
    ALLOCATABLE,
    LIST,
    AllocatableResources,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    GrpcCode,
    PodResources,
    Refused,
    StaysOpen,
    call,
    decode_allocatable,
    decode_list,
    encode_allocatable,
    encode_list,
    listening,
)
from hbox_common.kubelet.protobuf import put_bytes, put_int

SAMPLES = Path(__file__).parents[4] / "shared" / "samples" / "podresources"

numa = st.sets(st.integers(0, 63)).map(lambda found: tuple(sorted(found)))
names = st.text(max_size=8)
devices = st.builds(ContainerDevices, names, st.lists(names, max_size=3).map(tuple), numa)
memory = st.builds(ContainerMemory, names, st.integers(0, 2**62), numa)
cpus = st.lists(st.integers(0, 300), max_size=5).map(lambda found: tuple(sorted(found)))
containers = st.builds(
    ContainerResources, names, st.lists(devices, max_size=3).map(tuple), cpus, st.lists(memory, max_size=2).map(tuple)
)
pods = st.builds(PodResources, names, names, st.lists(containers, max_size=3).map(tuple))


@pytest.mark.hypothesis
@given(st.lists(pods, max_size=4).map(tuple))
def test_what_is_written_is_read(found: tuple[PodResources, ...]) -> None:
    assert decode_list(encode_list(found)) == found


@pytest.mark.hypothesis
@given(st.builds(AllocatableResources, st.lists(devices, max_size=4).map(tuple), cpus, st.lists(memory, max_size=2).map(tuple)))
def test_what_a_node_has_is_read_as_it_is_written(found: AllocatableResources) -> None:
    assert decode_allocatable(encode_allocatable(found)) == found


@pytest.mark.hypothesis
@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_say_that_they_are_no_message(body: bytes) -> None:
    for decode in (decode_list, decode_allocatable):
        try:
            decode(body)
        except InvalidRequest:
            pass


def test_bytes_as_go_writes_them() -> None:
    """Packed and single numbers, a NUMA node 0 that is an empty message, -1, and a field that nobody knows yet."""
    topology = bytes.fromhex("0a00 0a02 0803".replace(" ", "")) + put_bytes(1, put_int(1, -1))
    device = b"\x0a\x01r" + b"\x12\x01a" + b"\x12\x01b" + put_bytes(3, topology)
    container = b"\x0a\x01c" + put_bytes(2, device) + b"\x18\x05" + put_bytes(3, b"\x01\x02") + put_bytes(99, b"new")
    body = put_bytes(1, b"\x0a\x01p\x12\x01n" + put_bytes(3, container))
    [pod] = decode_list(body)
    assert pod == PodResources("n", "p", (ContainerResources("c", (ContainerDevices("r", ("a", "b"), (0, 3)),), (1, 2, 5)),))


@pytest.mark.skipif(not SAMPLES.exists(), reason="no folder ../shared/samples beside the project")
def test_samples_of_a_node_are_read() -> None:
    listed = json.loads((SAMPLES / "list_h100.json").read_text())["pod_resources"]
    pods = tuple(_pod(one) for one in listed)
    assert decode_list(encode_list(pods)) == pods
    held = {(pod.namespace, pod.name): len(pod.containers[0].devices) for pod in pods}
    assert held["team-a", "train-a-0"] == 5


def _pod(said: dict[str, Any]) -> PodResources:
    return PodResources(said["namespace"], said["name"], tuple(_container(one) for one in said["containers"]))


def _container(said: dict[str, Any]) -> ContainerResources:
    def where(one: dict[str, Any]) -> tuple[int, ...]:
        return tuple(node["ID"] for node in (one["topology"] or {"nodes": []})["nodes"])

    return ContainerResources(
        said["name"],
        tuple(ContainerDevices(d["resource_name"], tuple(d["device_ids"]), where(d)) for d in said["devices"]),
        tuple(said["cpu_ids"]),
        tuple(ContainerMemory(m["memory_type"], m["size"], where(m)) for m in said["memory"]),
    )


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / ("long" * 30) / "kubelet.sock"  # beyond the 107 bytes that a socket's path may have


async def test_a_question_is_answered_also_with_more_than_4_mib(socket: Path) -> None:
    asked: list[bytes] = []

    async def answer(body: bytes) -> bytes:
        asked.append(body)
        return b"x" * (5 * 2**20)

    async with listening(socket, {LIST: answer}):
        assert len(await call(socket, LIST, b"hello", timeout_s=60)) == 5 * 2**20
        assert asked == [b"hello"]


async def test_a_status_is_told_as_it_is(socket: Path) -> None:
    async def refuse(_: bytes) -> bytes:
        raise Refused(GrpcCode.RESOURCE_EXHAUSTED, "rejected by rate limit, ä")

    async with listening(socket, {LIST: refuse}):
        with pytest.raises(Refused, match="RESOURCE_EXHAUSTED: rejected by rate limit, ä"):
            await call(socket, LIST)
        with pytest.raises(Refused) as found:
            await call(socket, ALLOCATABLE)
        assert found.value.code == GrpcCode.UNIMPLEMENTED


async def test_a_stream_whose_next_message_has_not_come_is_no_answer(socket: Path) -> None:
    async def watched(_: bytes) -> bytes:
        return StaysOpen(b"first")

    async with listening(socket, {LIST: watched}):
        with pytest.raises(Unavailable, match="no answer"):
            await call(socket, LIST, timeout_s=0.3)


async def test_who_is_not_there_or_no_kubelet_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        await call(tmp_path / "none.sock", LIST)

    rebuffed = asyncio.Event()

    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        rebuffed.set()

    server = await asyncio.start_unix_server(rude, tmp_path / "rude.sock")
    with pytest.raises((InvalidRequest, Unavailable), match=r"rude\.sock does not speak HTTP/2|ended before"):
        await call(tmp_path / "rude.sock", LIST)
    await rebuffed.wait()
    server.close()
    await server.wait_closed()

    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_unix_server(silent, tmp_path / "silent.sock")
    with pytest.raises(Unavailable, match="no answer"):
        await call(tmp_path / "silent.sock", LIST, timeout_s=0.2)
    await ended.wait()
    server.close()
    await server.wait_closed()
