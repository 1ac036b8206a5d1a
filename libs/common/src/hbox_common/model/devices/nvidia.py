"""NVIDIA, shared by HAMi (reference hami §2.1).

Without HAMi's register the labels are those of GPU feature discovery. What does not stand here: MIG (the plugin's instances are not registered as cards).
"""

from .hami import HamiVendor
from .vendor import Figures

GPU = "nvidia.com/gpu"
GPU_CORES = "nvidia.com/gpucores"
GPU_MEMORY = "nvidia.com/gpumem"
GPU_MEMORY_PERCENT = "nvidia.com/gpumem-percentage"

NVIDIA = HamiVendor(
    name="nvidia",
    kind="NVIDIA",
    cards=GPU,
    cores=GPU_CORES,
    memory=GPU_MEMORY,
    memory_percent=GPU_MEMORY_PERCENT,
    no_models=frozenset({f"{GPU}.shared"}),  # as the plugin may call cards that it shares by time: a resource of its own
    register_annotation="hami.io/node-nvidia-register",
    type_prefix="NVIDIA-",
    model_label="nvidia.com/gpu.product",
    memory_label="nvidia.com/gpu.memory",
    models_annotation="nvidia.com/use-gputype",
    mode_annotation="nvidia.com/vgpu-mode",
    unsupported=("nvidia.com/nouse-gputype", "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"),
    allocated_annotation="hami.io/vgpu-devices-allocated",
    # By NVIDIA's data sheets; of models that come in several shapes the one with NVLink (SXM).
    figures={
        "P4": Figures(5.5, 32), "P40": Figures(12, 32), "P100": Figures(21, 160), "T4": Figures(65, 32), "V100": Figures(125, 300),
        "A2": Figures(18, 16), "A10": Figures(125, 64), "A16": Figures(18, 64), "A30": Figures(165, 200), "A40": Figures(150, 112),
        "A100": Figures(312, 600), "A800": Figures(312, 400), "L4": Figures(121, 64), "L20": Figures(119, 64), "L40": Figures(181, 64),
        "L40S": Figures(362, 64), "H20": Figures(148, 900), "H100": Figures(989, 900), "H800": Figures(989, 400), "H200": Figures(989, 900),
        "GH200": Figures(989, 900), "B200": Figures(2250, 1800), "GB200": Figures(2500, 1800), "RTX 3090": Figures(71, 32),
        "RTX 4090": Figures(165, 64),
    },
)  # fmt: skip
