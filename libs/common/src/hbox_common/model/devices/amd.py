"""AMD, shared by HAMi (reference hami §2.15), or whole with AMD's own device plugin, whose node labeller names the model."""

from .hami import HamiVendor
from .vendor import Figures

AMD = HamiVendor(
    name="amd",
    kind="AMD",
    cards="amd.com/gpu",
    cores="amd.com/gpucores",
    memory="amd.com/gpumem",
    register_annotation="hami.io/node-amd-register",
    model_label="amd.com/gpu.product-name",
    models_annotation="amd.com/use-gputype",
    unsupported=("amd.com/nouse-gputype", "amd.com/use-gpu-uuid", "amd.com/nouse-gpu-uuid"),
    allocated_annotation="hami.io/amd-devices-allocated",
    cores_unnamed=100,
    cores_in_percent=False,  # allocations count compute units
    # By AMD's data sheets, both ways over all links.
    figures={
        "MI210": Figures(181, 300),
        "MI250X": Figures(383, 800),
        "MI300X": Figures(1307, 896),
        "MI325X": Figures(1307, 896),
    },
)
