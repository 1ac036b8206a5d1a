"""Container images: which a pod runs, and which a node has already."""

import msgspec

from hbox_common import kube

from .documents import Document


class _Slim(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    pass


class _Container(_Slim, frozen=True, gc=False):
    image: str = ""


class _PodSpec(_Slim, frozen=True, gc=False):
    containers: tuple[_Container, ...] = ()


class _Pod(kube.KubeObject, frozen=True, gc=False):
    spec: _PodSpec = _PodSpec()


class _Image(_Slim, frozen=True, gc=False):
    names: tuple[str, ...] = ()
    size_bytes: int = 0


class _NodeStatus(_Slim, frozen=True, gc=False):
    images: tuple[_Image, ...] = ()


class _Node(kube.KubeObject, frozen=True, gc=False):
    status: _NodeStatus = _NodeStatus()


def images_of_pod(document: Document) -> tuple[str, ...]:
    """Raises InvalidRequest."""
    pod = document.read(_Pod, namespaced=True)
    return tuple(container.image for container in pod.spec.containers if container.image)


def images_of_node(document: Document) -> dict[str, int]:
    """Bytes, by every name that the image has; a name without a tag is `:latest`, as the kubelet writes it. Raises InvalidRequest."""
    node = document.read(_Node, namespaced=False)
    return {name: image.size_bytes for image in node.status.images for name in image.names}
