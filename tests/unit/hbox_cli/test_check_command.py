"""What `hbox check` says of somebody who answers, and not as it should."""

from typing import Any

from hbox_cli.commands.check import _database, _tried


async def test_an_answer_that_cannot_be_read_is_a_finding_and_the_others_are_asked() -> None:
    async def lies() -> str:
        version: Any = ["v1.34"]
        return str(version.get("gitVersion"))

    async def hangs() -> str:
        raise TimeoutError

    found = await _tried("kubernetes", lies, "look at the kubeconfig")
    assert (found.good, found.fix) == (False, "look at the kubeconfig")
    assert found.message.startswith("AttributeError: ")
    assert (await _tried("kubernetes", hangs, "")).message == "TimeoutError"


async def test_no_password_is_in_what_is_said_of_a_database() -> None:
    for url in ("postgresql+psycopg://hbox:planted@db/hbox", "postgresql+psycopg://hbox@db/hbox?password=planted"):
        said = await _database(url)
        assert "db/hbox" in said
        assert "planted" not in said
