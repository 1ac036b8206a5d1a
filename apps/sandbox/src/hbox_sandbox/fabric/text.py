"""A fabric as ibnetdiscover prints it."""

from collections import defaultdict
from collections.abc import Iterator

from hbox_common.model.fabric import HostLink, Snapshot


def ibnetdiscover_text(snapshot: Snapshot) -> str:
    """Omits ports that are down, and lists every cable at both ends."""
    return "\n".join(_lines(snapshot)) + "\n"


def _lines(snapshot: Snapshot) -> Iterator[str]:
    yield "# Topology file: of a fabric that is not there"
    rows: dict[str, dict[int, str]] = defaultdict(dict)
    cards: dict[str, list[HostLink]] = defaultdict(list)
    for link in snapshot.hosts:
        if link.up and link.switch:
            cards[link.card].append(link)
            rows[link.switch][link.switch_port] = (
                f'"H-{link.card}"[{link.port}]({link.card.lstrip("0")})\t\t# "{_description(link)}" lid 1 {link.width}x{link.speed}'
            )
    for trunk in snapshot.trunks:
        if trunk.up:
            for end, port, other, other_port in (
                (trunk.a, trunk.a_port, trunk.b, trunk.b_port),
                (trunk.b, trunk.b_port, trunk.a, trunk.a_port),
            ):
                rows[end][port] = (
                    f'"S-{other}"[{other_port}]\t\t# "{_title(snapshot, other)}" lid 1 {trunk.width}x{trunk.speed}'
                )
    for guid, switch in snapshot.switches.items():
        yield ""
        yield f"sysimgguid=0x{(switch.chassis or guid).lstrip('0')}"
        yield f'Switch\t65 "S-{guid}"\t\t# "{_title(snapshot, guid)}" enhanced port 0 lid 1 lmc 0'
        for port, row in sorted(rows[guid].items()):
            yield f"[{port}]\t{row}"
    for card, links in cards.items():
        yield ""
        yield f'Ca\t{len(links)} "H-{card}"\t\t# "{_description(links[0])}"'
        for link in links:
            yield (
                f'[{link.port}]({card}) \t"S-{link.switch}"[{link.switch_port}]'
                f'\t\t# lid 1 lmc 0 "{_title(snapshot, link.switch)}" lid 1 {link.width}x{link.speed}'
            )


def _title(snapshot: Snapshot, guid: str) -> str:
    switch = snapshot.switches[guid]
    return f"MF0;{switch.name}:{switch.model}/U1"


def _description(link: HostLink) -> str:
    return f"{link.host} {link.hca}".strip() if link.host else "MT4129 ConnectX7   Mellanox Technologies"
