"""What every test may ask for. Servers start at most once a run, and only when a test needs them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from storage import migrate
from storage.database import Database
from tests.support.postgres import PostgresServer, running_postgres
from tests.support.redis import RedisServer, running_redis

for _name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.lower(), None)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture
def redis_server(_redis_server: RedisServer) -> Iterator[RedisServer]:
    """A running Redis. A test may kill it; the next one gets a running one again."""
    yield _redis_server
    _redis_server.kill()
    _redis_server.start()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed SQLite file with all tables."""
    path = tmp_path_factory.mktemp("template") / "template.db"
    db = await Database.connect(f"sqlite+aiosqlite:///{path}")
    await migrate.upgrade(db)
    await db.close()
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """The address of a new SQLite file with all tables."""
    path = tmp_path / "pilothouse.db"
    path.write_bytes(sqlite_template.read_bytes())
    return f"sqlite+aiosqlite:///{path}"


@pytest.fixture
async def sqlite_database(sqlite_url: str) -> AsyncIterator[Database]:
    db = await Database.connect(sqlite_url)
    yield db
    await db.close()


@pytest.fixture
async def postgres_url(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """The address of a PostgreSQL database with all tables, empty and of this test alone."""
    name = await postgres_server.fresh()
    yield postgres_server.url(name)
    await postgres_server.wipe(name)


@pytest.fixture
async def postgres_database(postgres_url: str) -> AsyncIterator[Database]:
    db = await Database.connect(postgres_url)
    yield db
    await db.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """The address of a new database with all tables, once for each dialect."""
    name = {"sqlite": "sqlite_url", "postgresql": "postgres_url"}[request.param]
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A new database with all tables, once for each dialect."""
    db = await Database.connect(database_url)
    yield db
    await db.close()
