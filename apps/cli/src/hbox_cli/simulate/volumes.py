"""Claims, volumes and storage classes of a file, as job-controller keeps them."""

from hbox_common import kube
from hbox_jobs.adapters.volumes import binding_of, claim_view, reach_of, reach_of_class
from hbox_jobs.core.volumes import Volumes

from .documents import Document


def volumes_of(claims: list[Document], volumes: list[Document], classes: list[Document]) -> Volumes:
    """Raises InvalidRequest."""
    known = Volumes()
    for document in claims:
        claim = document.read(kube.PersistentVolumeClaim, namespaced=True)
        known.claim(f"{claim.metadata.namespace}/{claim.metadata.name}", claim_view(claim))
    for document in volumes:
        volume = document.read(kube.PersistentVolume, namespaced=False)
        known.volume(volume.metadata.name, reach_of(volume), kube.supply_of(volume))
    for document in classes:
        found = document.read(kube.StorageClass, namespaced=False)
        known.storage_class(found.metadata.name, binding_of(found), reach_of_class(found))
    return known
