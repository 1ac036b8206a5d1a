"""Whether a PCI bridge redirects transfers between devices below it to the root complex (Access Control Services), by its configuration space. Pure.

Extended capabilities are a list from 0x100 on: 16 bits of id, 4 of version, 12 of the next one's offset. The control register of ACS (0x000D) is at +6.
Without CAP_SYS_ADMIN Linux returns only the first 64 bytes, so a short result means unknown.
"""

from hbox_common.model.nodenuma import Redirect

#: Of a function's configuration space (PCI Express 7.9): where extended capabilities begin, and its end.
_EXTENDED, CONFIG_BYTES = 0x100, 4096
_ACS, _CONTROL = 0x000D, 6
#: P2P Request Redirect and P2P Completion Redirect.
_REDIRECTS = 0x04 | 0x08


def redirect_of(config: bytes) -> Redirect:
    """UNREAD: short, or a list with a cycle or an offset out of range. Never raises, and reads each offset once."""
    at, seen = _EXTENDED, set[int]()
    while at:
        if at < _EXTENDED or at in seen or at + 4 > min(len(config), CONFIG_BYTES):
            return Redirect.UNREAD
        seen.add(at)
        header = int.from_bytes(config[at : at + 4], "little")
        if header == 0xFFFF_FFFF:  # what the bus answers for a device that is gone
            return Redirect.UNREAD
        if header & 0xFFFF == _ACS:
            control = config[at + _CONTROL : at + _CONTROL + 2]
            if len(control) < 2 or control == b"\xff\xff":
                return Redirect.UNREAD
            return Redirect.ON if int.from_bytes(control, "little") & _REDIRECTS else Redirect.OFF
        at = (header >> 20) & 0xFFC
    return Redirect.NONE
