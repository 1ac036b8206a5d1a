"""Services that were told other settings of devices than this process are noticed by their messages."""

import logging

import pytest

from hbox_common.bus.agreement import FORGET_S, Agreement
from hbox_common.bus.delivery import Raw, deliver
from hbox_common.events import JobsWithdrawn, encode, headers
from hbox_common.model import VENDORS, JobId

BEGAN = 1000.0


class Clock:
    now = BEGAN

    def __call__(self) -> float:
        return self.now


def message(service: str, told: str = "") -> dict[str, str]:
    """The headers of a message of this service, which was told this `device-config.yaml`."""
    with VENDORS.configured(told):
        return headers(JobsWithdrawn, source=f"/hbox/{service}/one", message_id="m", now=BEGAN)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def agreement(clock: Clock) -> Agreement:
    return Agreement(clock)


A, B = "hygon: {memoryFactor: 8}", "hygon: {memoryFactor: 9}"


def test_a_process_that_was_told_nothing_says_nothing() -> None:
    assert "ce-deviceconfig" not in message("binder")
    assert message("binder", A)["ce-deviceconfig"] == message("topology-collector", A)["ce-deviceconfig"]


def test_who_differs_is_told_once_until_it_agrees(agreement: Agreement, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with VENDORS.configured(A), caplog.at_level(logging.ERROR):
        for said in (A, "", "", B):
            agreement.observe(message("job-controller", said), BEGAN + 1)
        assert len(caplog.records) == 2
        assert agreement.differing() == ["job-controller"]
        assert agreement.trouble().startswith("job-controller: other device settings")
        agreement.observe(message("binder", A), BEGAN + 1)
        assert agreement.differing() == ["job-controller"]
        agreement.observe(message("job-controller", A), BEGAN + 2)
        assert agreement.trouble() == ""


def test_what_nobody_says_again_is_forgotten(agreement: Agreement, clock: Clock) -> None:
    agreement.observe(message("binder", A), BEGAN + 1)
    assert agreement.differing() == ["binder"]
    clock.now += FORGET_S + 1
    assert agreement.differing() == []


@pytest.mark.parametrize(("service", "stored_at"), [("hbox-cli", BEGAN + 1), ("evil", BEGAN + 1), ("binder", BEGAN - 1)])
def test_neither_strangers_nor_messages_of_another_time_count(agreement: Agreement, service: str, stored_at: float) -> None:
    agreement.observe(message(service, A), stored_at)
    assert agreement.differing() == []


@pytest.mark.parametrize("source", ["", "binder", "/hbox", "/hbox/binder"])
def test_any_source_is_read(agreement: Agreement, source: str) -> None:
    agreement.observe({"ce-source": source, "ce-deviceconfig": "x\n" * 1000}, BEGAN + 1)
    assert agreement.differing() == (["binder"] if source == "/hbox/binder" else [])


def test_every_message_that_is_read_counts(monkeypatch: pytest.MonkeyPatch, agreement: Agreement) -> None:
    monkeypatch.setattr("hbox_common.bus.delivery.AGREEMENT", agreement)
    event = JobsWithdrawn(jobs=(JobId("a"),), revisions=(1,))
    raw = Raw("s", "r", encode(event), message("job-controller", A), 1, 1, 1, int((BEGAN + 1) * 1e9), 0)
    deliver(raw, [JobsWithdrawn])
    assert agreement.differing() == ["job-controller"]
