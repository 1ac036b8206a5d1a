"""/metrics/cards: the allocated amounts of each card, and the pods that hold them."""

from hbox_ledger.cardmetrics import cards_page

from .conftest import World


async def shown(world: World, *, pods: bool) -> str:
    return b"".join([part async for part in cards_page(lambda: world.state, pods=pods)]).decode()


async def test_pod_names_are_in_card_metrics_only_with_the_setting(world: World) -> None:
    world.commits(world.plan("secret-gang", ("secret-pod", "a", [world.card(0)])))
    plain = await shown(world, pods=False)
    assert 'hbox_card_shares_allocated{node="a"' in plain
    assert "namespace=" not in plain
    assert "secret-" not in plain
    assert 'pod="secret-pod"' in await shown(world, pods=True)
