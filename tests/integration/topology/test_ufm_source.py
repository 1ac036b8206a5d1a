"""UFM over HTTP, as it is on good days and on bad ones."""

import resource
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.model.fabric import Snapshot
from hbox_sandbox.fabric import FabricPlan, UfmServer
from hbox_topology.adapters.fabricsfile import Auth, UfmSpec
from hbox_topology.adapters.ufm import UfmSource
from hbox_topology.core.fabric.build import build

from ...certificates import NONE, OPENSSL, make_certificates


@pytest.fixture
async def ufm() -> AsyncIterator[UfmServer]:
    async with UfmServer(FabricPlan().snapshot()) as server:
        yield server


@pytest.fixture
def secrets(tmp_path: Path, ufm: UfmServer) -> Path:
    for name in ("token", "password"):
        (tmp_path / name).write_text(getattr(ufm, name) + "\n")
    (tmp_path / "username").write_text(ufm.user)
    return tmp_path


def source(ufm: UfmServer, secrets: Path, auth: Auth = Auth.TOKEN, **more: Any) -> UfmSource:
    return UfmSource(UfmSpec(url=ufm.url, auth=auth, credentials=secrets, **more))


async def snapshot_of(source: UfmSource) -> Snapshot:
    try:
        reading = await source.read()
        assert reading.snapshot is not None
        return reading.snapshot
    finally:
        await source.close()


@pytest.mark.parametrize("auth", [Auth.BASIC, Auth.SESSION, Auth.TOKEN])
async def test_each_login_reads_the_fabric_whole(ufm: UfmServer, secrets: Path, auth: Auth) -> None:
    found = await snapshot_of(source(ufm, secrets, auth, page=50))
    assert set(found.hosts) == set(ufm.snapshot.hosts)
    assert set(found.trunks) == set(ufm.snapshot.trunks)
    assert found.switches == ufm.snapshot.switches


async def test_a_token_is_sent_under_the_other_word_where_the_first_is_refused(ufm: UfmServer, secrets: Path) -> None:
    ufm.word = "Bearer"
    assert len((await snapshot_of(source(ufm, secrets))).hosts) == 64


async def test_wrong_credentials_are_told_without_them(ufm: UfmServer, secrets: Path) -> None:
    (secrets / "token").write_text("another-secret")
    (secrets / "password").write_text("another-secret")
    for auth in (Auth.TOKEN, Auth.BASIC, Auth.SESSION):
        with pytest.raises(InvalidRequest, match="401") as told:
            await source(ufm, secrets, auth).read()
        assert "another-secret" not in repr(told.value) + str(told.value) + str(told.value.__cause__)
    (secrets / "token").unlink()
    with pytest.raises(InvalidRequest, match="token: No such file"):
        await source(ufm, secrets).read()


async def test_nothing_is_fetched_while_counters_stand_still(ufm: UfmServer, secrets: Path) -> None:
    one = source(ufm, secrets)
    assert (await one.read()).snapshot is not None
    for _ in range(3):
        assert (await one.read()).snapshot is None
    assert ufm.asked["/resources/ports"] == 1
    ufm.move()
    assert (await one.read()).snapshot is not None
    await one.close()


async def test_pages_that_say_what_they_said_are_not_parsed_again(ufm: UfmServer, secrets: Path) -> None:
    one = source(ufm, secrets, page=16)
    assert (await one.read()).snapshot is not None
    whole = one.rows_parsed
    ufm.move()
    again = (await one.read()).snapshot
    assert again is not None
    assert set(again.hosts) == set(ufm.snapshot.hosts)
    assert one.rows_parsed == whole
    links = ufm.snapshot.hosts
    elsewhere = replace(links[-1], switch=links[0].switch, switch_port=60)
    ufm.snapshot = replace(ufm.snapshot, hosts=(*links[:-1], elsewhere))
    after = (await one.read()).snapshot
    assert after is not None
    assert set(after.hosts) == {*links[:-1], elsewhere}
    assert 0 < one.rows_parsed - whole < whole / 2
    await one.close()


async def test_a_page_of_more_rows_than_any_fabric_has_is_refused(
    ufm: UfmServer, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_topology.adapters.ufm.MAX_LINKS", 100)
    with pytest.raises(InvalidRequest, match="more than 100 rows"):
        await source(ufm, secrets).read()


async def test_versions_without_pages_or_counters_are_read_too(ufm: UfmServer, secrets: Path) -> None:
    ufm.fail(pages=False, versioning=False)
    one = source(ufm, secrets, resync_s=10.0)
    found = (await one.read()).snapshot
    assert found is not None
    assert set(found.hosts) == set(ufm.snapshot.hosts)
    await one.close()


async def test_a_session_that_ended_is_begun_anew(ufm: UfmServer, secrets: Path) -> None:
    one = source(ufm, secrets, Auth.SESSION)
    await one.read()
    ufm.log_out()
    ufm.move()
    assert (await one.read()).snapshot is not None
    await one.close()


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ({"down": True}, "answers 503"),
        ({"logged_out": True}, "page of HTML"),
        ({"cut": True}, "ends in the middle"),
        ({"cut": True, "pages": False}, "ends in the middle"),
        ({"half_paged": True}, "announces 256 rows and contains 250"),
        ({"empty": True}, "is empty"),
        ({"repeats": True}, "page 2 of /resources/ports repeats another page"),
        ({"announced_pages": 10**9}, "how many pages /resources/systems has cannot be read"),
        ({"announced_pages": "many"}, "cannot be read"),
        ({"announced_pages": 1}, "announces 256 rows and contains 50"),
        ({"announced_pages": 9}, "is empty"),
        ({"status": 429, "retry_after": "31536000"}, "answers 429"),
        ({"status": 503, "retry_after": "31536000"}, "answers 503"),
        ({"status": 304}, "sends us elsewhere"),
        ({"endless": "headers"}, "400|Got more than|too large|too many"),
        ({"redirects_to": "http://127.0.0.1:1/steal"}, "sends us elsewhere"),
    ],
)
async def test_what_is_no_whole_answer_is_refused(ufm: UfmServer, secrets: Path, faults: dict[str, Any], told: str) -> None:
    ufm.fail(**faults)
    with pytest.raises(Unavailable, match=told):
        await source(ufm, secrets, page=50).read()


async def test_time_and_size_are_bounded(ufm: UfmServer, secrets: Path) -> None:
    ufm.fail(slow_s=3.0)
    with pytest.raises(Unavailable, match="within 1 s"):
        await source(ufm, secrets, timeout_s=1.0).read()


async def test_rows_with_anything_in_them_are_left_out_one_by_one(ufm: UfmServer, secrets: Path) -> None:
    ufm.fail(garbage=True)
    found = await snapshot_of(source(ufm, secrets))
    assert found.problems
    assert 0 < len(found.hosts) <= 64
    build(found)


async def test_pages_are_read_again_while_counters_move_and_taken_in_the_end(ufm: UfmServer, secrets: Path) -> None:
    ufm.fail(moves=True)
    one = source(ufm, secrets)
    assert (await one.read()).snapshot is not None
    assert ufm.asked["/resources/ports"] == 3
    await one.close()


@pytest.mark.parametrize("new", [True, False])
async def test_failovers_and_what_went_down_are_counted_since_the_last_reading(
    ufm: UfmServer, secrets: Path, new: bool
) -> None:
    ufm.new_events = new
    ufm.add_event(602, "old news")
    one = source(ufm, secrets)
    assert (await one.read()).failovers == 0
    for number in (512, 329, 331, 64, 328):
        ufm.add_event(number)
    ufm.move()
    reading = await one.read()
    assert (reading.failovers, reading.downs) == (1, 2)
    assert (await one.read()).downs == 0
    await one.close()


@pytest.mark.parametrize(
    ("events", "told"), [("denied", "answers 403"), ("flood", "more than 100000 of them"), ("hang", "no answer within 1 s")]
)
async def test_a_fabric_is_read_without_its_events(
    ufm: UfmServer, secrets: Path, caplog: pytest.LogCaptureFixture, events: str, told: str
) -> None:
    one = source(ufm, secrets, timeout_s=4.0 if events == "hang" else 60.0)
    await one.read()
    ufm.fail(events=events)
    for _ in range(2):
        ufm.move()
        assert (await one.read()).snapshot is not None
    assert [told in record.message for record in caplog.records if "events cannot be read" in record.message] == [True]
    ufm.fail()
    ufm.add_event(512)
    assert (await one.read()).failovers == 0, "which of them are new is not known"
    ufm.add_event(512)
    assert (await one.read()).failovers == 1
    await one.close()


async def test_a_port_that_went_down_is_read_as_such(ufm: UfmServer, secrets: Path) -> None:
    links = ufm.snapshot.hosts
    ufm.snapshot = replace(ufm.snapshot, hosts=(replace(links[0], up=False, switch="", switch_port=0), *links[1:]))
    graph = build(await snapshot_of(source(ufm, secrets)))
    assert [str(finding) for finding in graph.findings] == [f"{links[0].host} has no link on rail 1 ({links[0].hca})"]


def test_credentials_have_no_place_in_an_address_and_go_nowhere_in_the_clear(tmp_path: Path) -> None:
    for url in ("https://user:pass@ufm", "http://ufm.example.org", "ftp://ufm", "https://ufm/?token=x", "https://"):
        with pytest.raises(ValueError, match="url"):
            UfmSpec(url=url, credentials=tmp_path)


@pytest.mark.skipif(OPENSSL is None, reason=NONE)
async def test_only_the_given_authority_is_trusted_and_a_certificate_of_ours_is_a_login(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(made / "ca.pem"))
    tls.load_cert_chain(made / "broker.pem", made / "broker.key")
    tls.verify_mode = ssl.CERT_OPTIONAL
    for name in ("crt", "key"):
        (tmp_path / f"tls.{name}").write_bytes((made / f"client.{'pem' if name == 'crt' else 'key'}").read_bytes())
    async with UfmServer(FabricPlan().snapshot(), tls=tls) as ufm:
        (tmp_path / "token").write_text(ufm.token)
        for auth in (Auth.TOKEN, Auth.CERTIFICATE):
            assert len((await snapshot_of(source(ufm, tmp_path, auth, ca=made / "ca.pem"))).hosts) == 64
        for ca in (made / "other.pem", None):
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await source(ufm, tmp_path, ca=ca).read()
        assert "/app/versioning" in ufm.asked
    with pytest.raises(InvalidRequest, match=r"certificates of .*missing.pem cannot be used"):
        await source(ufm, tmp_path, ca=made / "missing.pem").read()


@pytest.mark.parametrize(
    ("endless", "told"),
    [
        ("rows", "more than 4 MiB"),
        ("nothing", "more than 1000 rows|more than 4 MiB"),
        ("blanks", "more than 4 MiB"),
        ("bomb", "more than 4 MiB"),
        ("row", "a value of more than|more than 4 MiB"),
        ("drip", "within 1 s"),
    ],
)
async def test_no_answer_costs_more_than_its_bounds(
    ufm: UfmServer, secrets: Path, monkeypatch: pytest.MonkeyPatch, endless: str, told: str
) -> None:
    """`nothing`: three characters make a row each."""
    monkeypatch.setattr("hbox_topology.adapters.ufm.MAX_LINKS", 1000)
    ufm.fail(endless=endless)
    one = source(ufm, secrets, most_mib=4, timeout_s=1.0 if endless == "drip" else 30.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((Unavailable, InvalidRequest), match=told):
        await one.read()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 << 10
    ufm.fail()
    assert (await one.read()).snapshot is not None
    await one.close()


async def test_a_login_that_ends_between_two_pages_is_made_anew_and_nothing_is_missed(ufm: UfmServer, secrets: Path) -> None:
    ufm.fail(denies_page=3)
    assert set((await snapshot_of(source(ufm, secrets, Auth.SESSION, page=50))).hosts) == set(ufm.snapshot.hosts)


async def test_how_many_pages_there_are_may_be_text(ufm: UfmServer, secrets: Path) -> None:
    ufm.fail(announced_pages="2")
    found = await snapshot_of(source(ufm, secrets, page=128))
    assert set(found.hosts) == set(ufm.snapshot.hosts)


async def test_counters_and_events_that_begin_anew_are_news(ufm: UfmServer, secrets: Path) -> None:
    for _ in range(5):
        ufm.add_event(602, "old")
    one = source(ufm, secrets)
    await one.read()
    ufm.move(-500)
    ufm.events.clear()
    assert (await one.read()).snapshot is not None
    ufm.add_event(602, "new")
    assert (await one.read()).failovers == 1
    await one.close()


async def test_credentials_go_to_nobody_else_at_a_redirect(tmp_path: Path) -> None:
    heard: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        heard.append(str(request.headers))
        return web.Response(text="[]")

    stranger = web.Application()
    stranger.router.add_route("*", "/{path:.*}", elsewhere)
    runner = web.AppRunner(stranger, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    there = f"http://127.0.0.1:{runner.addresses[0][1]}/take"
    try:
        async with UfmServer(FabricPlan().snapshot()) as ufm:
            for name, text in (("token", ufm.token), ("username", ufm.user), ("password", ufm.password)):
                (tmp_path / name).write_text(text)
            for auth in (Auth.TOKEN, Auth.BASIC, Auth.SESSION):
                one = source(ufm, tmp_path, auth)
                await one.read()
                ufm.fail(redirects_to=there)
                with pytest.raises(Unavailable, match="sends us elsewhere"):
                    await one.read()
                ufm.fail()
    finally:
        await runner.cleanup()
    assert not heard
