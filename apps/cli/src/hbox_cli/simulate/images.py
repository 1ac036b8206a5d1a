"""Container images: which a pod runs, and which nodes have already."""

from collections.abc import Iterable, Iterator

from hbox_common import kube
from hbox_common.model import HeldImage, NodeName, image_name

from .documents import Document


def images_of_pod(document: Document) -> tuple[str, ...]:
    """Raises InvalidRequest."""
    pod = document.read(kube.Pod, namespaced=True)
    return tuple(image_name(container.image) for container in pod.spec.containers if container.image)


def images_of_nodes(nodes: Iterable[tuple[Document, NodeName]]) -> Iterator[HeldImage]:
    """Raises InvalidRequest."""
    for document, name in nodes:
        for image in document.read(kube.Node, namespaced=False).status.images or ():
            yield HeldImage(tuple(map(image_name, image.names or ())), image.size_bytes, (name,))
