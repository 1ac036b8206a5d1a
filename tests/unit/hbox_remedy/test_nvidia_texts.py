"""What NVIDIA's programs and files print, as node-remedy reads it."""

import pytest

from hbox_remedy.core.nvidia import Card, card_of, compute_instances, creation, gpu_instances, release_of, settings_of

INFORMATION = "Model: \t\t NVIDIA L20\nGPU UUID: \t GPU-6a1f0c9e\nBus Location: \t 0000:18:00.0\nDevice Minor: \t 3\n"


def test_a_cards_information_has_its_uuid_and_minor_number() -> None:
    assert card_of("0000:18:00.0", INFORMATION) == Card("GPU-6a1f0c9e", "0000:18:00.0", 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        INFORMATION.replace("GPU-6a1f0c9e", "GPU-????????-????-????-????-????????????"),  # the driver does not reach it
        INFORMATION.replace("Device Minor: \t 3\n", ""),
        INFORMATION.replace("\t 3", "\t ?"),
    ],
)
def test_a_card_without_uuid_or_minor_number_is_not_reached(text: str) -> None:
    assert card_of("0000:18:00.0", text) is None


@pytest.mark.parametrize(
    ("csv", "modes"),
    [
        ("Enabled, Disabled\n", (True, False)),
        ("Disabled, Enabled\n", (False, True)),
        ("Disabled, [N/A]\n", (False, False)),
        ("No devices were found\n", None),
        ("Enabled, Disabled\nEnabled, Disabled\n", None),
        ("", None),
    ],
)
def test_modes_of_a_card_are_read_or_unknown(csv: str, modes: tuple[bool, bool] | None) -> None:
    assert settings_of(csv) == modes


def test_mig_instances_are_made_again_in_their_places() -> None:
    gpu = (
        "|   0  MIG 1g.10gb+me      20        9          6:1     |\n|   0  MIG 3g.40gb          9        2          0:4     |\n"
    )
    compute = "|   0      9       MIG 1g.10gb           0         0          0:1     |\n"
    compute += "|   0      2       MIG 3g.40gb           2         0          0:3     |\n"
    assert creation(gpu_instances(gpu), compute_instances(compute)) == "9:0,20:6"
    assert creation(gpu_instances(gpu), compute_instances(compute)[:1]) is None, "an instance without a compute instance"
    shared = compute.replace("      9 ", "      2 ")
    assert creation(gpu_instances(gpu), compute_instances(shared)) is None, "two compute instances in one"


def test_release_is_the_first_version_number() -> None:
    assert release_of("Fabric Manager version is : 550.54.15\n") == "550.54.15"
    assert release_of("command not found") == ""
