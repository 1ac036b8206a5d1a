"""What runs here, of which version."""

import os
import platform
import sys
from importlib.metadata import distributions

from .archive import Files


async def versions() -> Files:
    """Of HBox, Python, the libraries and the machine."""
    machine = {
        "python": sys.version,
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
    }
    libraries = {one.metadata["Name"]: one.version for one in distributions()}
    return {"versions.json": {**machine, "libraries": dict(sorted(libraries.items()))}}
