"""Reading a service's database from outside, without being its writer and without keeping it from writing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, create_engine, event, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from hbox_common.errors import InvalidRequest, NotFound

from .engine import CONNECT_TIMEOUT_S, parse, refused
from .schema import Schema, newest


@contextmanager
def reading(url: str, *, versions: Path | None, accepted_before: bool = False) -> Iterator[Connection]:
    """A connection that reads one moment of the database at `url`. `accepted_before`: as for `refused`.

    Raises InvalidRequest where its schema is not the newest of `versions`, nor a later one with room for who knows these; NotFound, Unavailable.
    """
    parsed = parse(url)
    where = f"database {parsed.render_as_string(hide_password=True)}"
    if parsed.get_backend_name() == "sqlite":
        file = Path(parsed.database or "").absolute()
        if not file.is_file():
            raise NotFound(f"{where}: there is no such file")
        read_only = URL.create("sqlite", database=f"file:{quote(str(file))}", query={"mode": "ro", "uri": "true"})
        engine = create_engine(read_only, poolclass=NullPool)
        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    else:  # not by the name of writers, whose sessions a new one ends
        arguments = {"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "hbox-reader"}
        engine = create_engine(parsed, poolclass=NullPool, connect_args=arguments, isolation_level="REPEATABLE READ")
    try:
        with engine.connect() as connection:
            if parsed.get_backend_name() != "sqlite":
                connection.execute(text("SET TRANSACTION READ ONLY"))
            if versions is not None:
                _check(connection, where, versions)
            yield connection
    except SQLAlchemyError as e:
        raise refused(e, where, accepted_before=accepted_before) from e
    finally:
        engine.dispose()


def _check(connection: Connection, where: str, versions: Path) -> None:
    found = Schema.of(connection)
    if not found.fits(versions):
        raise InvalidRequest(
            f"{where}: its schema is {found.revision or 'none of ours'}, this version knows {newest(versions)}",
            hint="use the version of the service that writes to it",
        )
