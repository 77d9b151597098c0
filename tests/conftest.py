"""Fixtures for every test: real servers of all supported versions, databases, seeds.

    pg          a server of each version that is to be tested (narrow it by @pytest.mark.pg(">= 17")); a PgServer.
                If what is tested depends on the version, the test is marked `versions`
    database    conninfo of an empty database on `pg`
    pg18        the server of the Python package only, for tests to which the version makes no difference
    database18  conninfo of an empty database on `pg18`
    ledger      conninfo of a database on `pg` that has an empty ledger, which a load would take 30 ms to create
    ledger18    the same on `pg18`
    s3_lab      a database with aws_s3 on a lab of each version, and an empty bucket beside it; an S3Lab
    s3_lab18    the same on the usual version only
    new_server  makes an EmbeddedServer for the test alone, to be stopped or broken
    penstock    runs the command line in this process; support.command.run_process does in another one
    seed, rng   what random input starts from
    some        a few of the cases in the first part, all of them in the second

PENSTOCK_TEST_DSN names a server to use in place of all these; PENSTOCK_TEST_MAJOR another version for `pg18` and
`new_server`, so that every test runs on it; PENSTOCK_TEST_SEED another seed. Hypothesis
repeats the same examples at each run; --hypothesis-profile=explore draws new ones.

Which tests run (`make test`, `make test-rest`, `make test-all`, .ci/run):

    --part=main  the newest version, and the oldest for what is marked `versions`; small property runs and a few of
                 the moments at which something is killed; not what is marked `part("rest")`. The default
    --part=rest  the other versions, large property runs, every moment, and what is marked `part("rest")`
    --part=all   both
    --limit-s=N  skip, by name, the tests that have not begun after N seconds

A module of slow tests, or of labs, is marked `part("rest")` as a whole, and its smoke test `part("main")`.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import time
from typing import TYPE_CHECKING, TypeVar

import hypothesis
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.cli.main import main
from penstock.core.connect.connection import ConnectionFactory
from penstock.embedded.users import choose_server_user, give_to, is_root
from support import maven
from support.command import Finished
from support.loads import Loads
from support.modes import dying_with_killed
from support.s3_lab import S3Lab, S3Labs
from support.servers import (
    TEST_SETTINGS,
    USUAL_MAJOR,
    PgServer,
    ServerPool,
    describe,
    majors_to_test,
    satisfies,
    server_pool,
)
from support.small_disk import SmallDisk, small_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer

_Case = TypeVar("_Case")

DEFAULT_SEED = 20_260_101
DSN = "PENSTOCK_TEST_DSN"
# When the run began, for the processes that it starts.
_BEGAN = "PENSTOCK_TEST_BEGAN"
_BEGAN_S = pytest.StashKey[float]()

# Deadlines would be wall-clock assertions on a shared machine.
for _part, _examples in (("main", 25), ("rest", 100)):
    hypothesis.settings.register_profile(
        _part, derandomize=True, deadline=None, print_blob=True, database=None, max_examples=_examples
    )
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that say which tests run."""
    group = parser.getgroup("penstock")
    group.addoption("--part", choices=["main", "rest", "all"], default="main", help="which part of the tests to run")
    group.addoption("--limit-s", type=float, default=None, help="skip the tests that have not begun after N seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples property tests take, and have SIGINT interrupt.

    A shell without job control starts background processes, and their children, so that they ignore SIGINT.
    """
    if config.getoption("--hypothesis-profile", None) is None:
        hypothesis.settings.load_profile("main" if config.getoption("--part") == "main" else "rest")
    config.stash[_BEGAN_S] = float(os.environ.setdefault(_BEGAN, str(time.time())))
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that belong to the other part."""
    part = config.getoption("--part")
    if part == "all" or DSN in os.environ:
        return
    majors = majors_to_test()
    chosen, others = [], []
    for item in items:
        is_main = _is_main(item, majors)
        is_wanted = is_main == (part == "main") or (is_main and _has_more_cases(item))
        (chosen if is_wanted else others).append(item)
    config.hook.pytest_deselected(items=others)
    # What a limit leaves out are other versions of what has run.
    items[:] = sorted(chosen, key=lambda item: not _is_first_version(item, majors))


def _has_more_cases(item: pytest.Item) -> bool:
    """Return whether a test has more cases in the second part: a property test, or one that uses `some`."""
    return hasattr(getattr(item, "obj", None), "hypothesis") or "some" in getattr(item, "fixturenames", ())


def _is_main(item: pytest.Item, majors: Sequence[int]) -> bool:
    """Return whether `make test` runs a test. The mark of a test or of a case overrides that of its module."""
    part = item.get_closest_marker("part")
    return (part is None or part.args[0] == "main") and _is_first_version(item, majors)


def _is_first_version(item: pytest.Item, majors: Sequence[int]) -> bool:
    """Return whether a test is on the newest version that it allows, or, if it is marked `versions`, the oldest."""
    spec = getattr(item, "callspec", None)
    major = None if spec is None else spec.params.get("pg_major")
    if major is None:
        return True
    needs = [mark.args[0] for mark in item.iter_markers("pg")]
    allowed = [each for each in majors if all(satisfies(each, need) for need in needs)]
    return major == max(allowed) or (major == min(allowed) and item.get_closest_marker("versions") is not None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that begins after the limit."""
    limit_s = item.config.getoption("--limit-s")
    if limit_s is not None and time.time() - item.config.stash[_BEGAN_S] > limit_s:
        pytest.skip(f"not begun within {limit_s:.0f} s: make test-all runs it")


def pytest_report_header() -> list[str]:
    """Say what the results depend on."""
    return [f"PostgreSQL: {describe()}", f"seed: {_seed()}"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses `pg` once for each version its marks allow."""
    if "pg_major" not in metafunc.fixturenames:
        return
    requirements = [mark.args[0] for mark in metafunc.definition.iter_markers("pg")]
    majors: list[int | None] = [None]
    if DSN not in os.environ:
        majors = [major for major in majors_to_test() if all(satisfies(major, need) for need in requirements)]
    ids = ["dsn" if major is None else f"pg{major}" for major in majors]
    if not majors:
        reason = f"no PostgreSQL {' and '.join(requirements)} is installed (.ci/install-postgresql)"
        metafunc.parametrize("pg_major", [pytest.param(None, id="missing", marks=pytest.mark.skip(reason=reason))])
        return
    metafunc.parametrize("pg_major", majors, ids=ids, indirect=True, scope="session")


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep the recordings of the tests' loads out of the user's folder; the tests' own processes inherit this."""
    folder = tmp_path_factory.mktemp("state")
    os.environ["XDG_STATE_HOME"] = str(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def dead_loaders() -> Iterator[None]:
    """Let loads that `Killed` ends leave all as it is."""
    with dying_with_killed():
        yield


@pytest.fixture(scope="session")
def servers() -> Iterator[ServerPool]:
    """Provide the servers of this run; they end with it, whatever ends it."""
    with server_pool() as pool:
        yield pool


@pytest.fixture(scope="session")
def pg_major(request: pytest.FixtureRequest) -> int | None:
    """Provide the version that `pg` is to have; None for the server of PENSTOCK_TEST_DSN."""
    major: int | None = request.param
    return major


@pytest.fixture
def pg(request: pytest.FixtureRequest, servers: ServerPool, pg_major: int | None) -> Iterator[PgServer]:
    """Provide a running server, of each version in turn."""
    yield from _provide(request, servers, pg_major)


@pytest.fixture
def pg18(request: pytest.FixtureRequest, servers: ServerPool) -> Iterator[PgServer]:
    """Provide a running server of version 18, or PENSTOCK_TEST_MAJOR."""
    yield from _provide(request, servers, None if DSN in os.environ else USUAL_MAJOR)


@pytest.fixture
def database(pg: PgServer) -> str:
    """Provide an empty database on `pg`, as conninfo."""
    return pg.fresh_database()


@pytest.fixture
def database18(pg18: PgServer) -> str:
    """Provide an empty database on `pg18`, as conninfo."""
    return pg18.fresh_database()


@pytest.fixture
def ledger(pg: PgServer) -> str:
    """Provide a database on `pg` with an empty ledger, as conninfo."""
    return pg.fresh_database(has_ledger=True)


@pytest.fixture
def ledger18(pg18: PgServer) -> str:
    """Provide a database on `pg18` with an empty ledger, as conninfo."""
    return pg18.fresh_database(has_ledger=True)


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    """Provide an autocommit connection to an empty database, on each version in turn."""
    with psycopg.connect(database, autocommit=True) as opened:
        yield opened


@pytest.fixture
def connection18(database18: str) -> Iterator[psycopg.Connection]:
    """Provide an autocommit connection to an empty database on `pg18`."""
    with psycopg.connect(database18, autocommit=True) as opened:
        yield opened


@pytest.fixture
def user_name(database: str) -> Iterator[str]:
    """Provide an ordinary role that may log in and has been granted nothing."""
    name = f"ordinary {secrets.token_hex(4)}"
    role = sql.Identifier(name)
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'hunter2'").format(role))
        yield name
        admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
        admin.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.fixture
def user_conninfo(database: str, user_name: str) -> str:
    """Provide the connection string of the ordinary role."""
    return make_conninfo(database, user=user_name, password="hunter2")


@pytest.fixture
def new_server(servers: ServerPool) -> Iterator[Callable[..., EmbeddedServer]]:
    """Provide a function (major=18, **settings) that makes a server for this test alone, not started."""
    made: list[EmbeddedServer] = []

    def make(major: int | None = USUAL_MAJOR, **settings: str) -> EmbeddedServer:
        if major is None:
            pytest.skip("needs a server of its own, not that of PENSTOCK_TEST_DSN")
        try:
            installation = servers.installation(major)
        except maven.Unavailable as reason:
            pytest.skip(f"PostgreSQL {major}: {reason}")
        server = servers.new_server(installation, settings={**TEST_SETTINGS, **settings})
        made.append(server)
        return server

    yield make
    for server in made:
        server.stop("immediate")
        # Some have hundreds of MB, in memory.
        shutil.rmtree(server.spec.files.home, ignore_errors=True)


@pytest.fixture
def penstock(capfd: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """Provide a function (*arguments) that runs the command line in this process."""

    def run(*arguments: str) -> Finished:
        code = main(arguments)
        out, err = capfd.readouterr()
        return Finished(code, out, err)

    return run


@pytest.fixture
def user_connection(user_conninfo: str) -> Iterator[psycopg.Connection]:
    """Provide a session of the ordinary role, as penstock makes it."""
    with ConnectionFactory(user_conninfo).connect() as opened:
        yield opened


@pytest.fixture
def disk(pg18: PgServer) -> Iterator[SmallDisk]:
    """Provide a disk of 16 MB with tablespace `small` on it."""
    if pg18.server is None or not is_root() or shutil.which("mount") is None:
        pytest.skip("needs a server on this machine, and root, to mount a disk (Debian's package mount)")
    with small_disk(16 * 2**20) as disk:
        folder = disk.path / "space"
        folder.mkdir()
        give_to(folder, choose_server_user(pg18.server.data_dir))
        disk.path.chmod(0o755)
        admin = Loads(pg18.conninfo, setup=f"CREATE TABLESPACE penstock_small LOCATION '{folder}'")
        yield disk
        admin.execute("DROP TABLESPACE penstock_small")


@pytest.fixture(scope="session")
def s3_labs(servers: ServerPool) -> Iterator[S3Labs]:
    """Provide the labs with an S3; they end with this run."""
    labs = S3Labs(servers)
    yield labs
    labs.close()


@pytest.fixture
def s3_lab(s3_labs: S3Labs, pg_major: int | None) -> Iterator[S3Lab]:
    """Provide a database with aws_s3 and an empty bucket, of each version in turn."""
    if pg_major is None:
        pytest.skip("labs are not the server of PENSTOCK_TEST_DSN")
    try:
        lab = s3_labs.database(pg_major)
    except maven.Unavailable as reason:
        pytest.skip(f"PostgreSQL {pg_major}: {reason}")
    yield lab
    lab.empty()


@pytest.fixture
def s3_lab18(s3_labs: S3Labs) -> Iterator[S3Lab]:
    """Provide a database with aws_s3 and an empty bucket, of the usual version only."""
    lab = s3_labs.database(USUAL_MAJOR)
    yield lab
    lab.empty()


@pytest.fixture
def debian15() -> int:
    """Provide the version that comes with contrib; skip where it is not installed."""
    if 15 not in majors_to_test():
        pytest.skip("PostgreSQL 15 with contrib is not installed (Debian's package postgresql-15)")
    return 15


@pytest.fixture(scope="session")
def seed() -> int:
    """Provide the seed of this run, which the header shows."""
    return _seed()


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Provide a random generator that starts from the seed."""
    return random.Random(seed)


@pytest.fixture
def some(request: pytest.FixtureRequest, rng: random.Random) -> Callable[[Sequence[_Case], int], list[_Case]]:
    """Provide a function (cases, few) that returns `few` of the cases, chosen by the seed; in the second part all."""
    is_main = request.config.getoption("--part") == "main"

    def choose(cases: Sequence[_Case], few: int) -> list[_Case]:
        chosen = sorted(rng.sample(range(len(cases)), min(few, len(cases)))) if is_main else range(len(cases))
        return [cases[number] for number in chosen]

    return choose


def _seed() -> int:
    return int(os.environ.get("PENSTOCK_TEST_SEED", DEFAULT_SEED))


def _provide(request: pytest.FixtureRequest, servers: ServerPool, major: int | None) -> Iterator[PgServer]:
    server = _given_server() if major is None else _embedded_server(servers, major)
    for mark in request.node.iter_markers("pg"):
        if not satisfies(server.major, mark.args[0]):
            pytest.skip(f"needs PostgreSQL {mark.args[0]}")
    yield server
    server.drop_databases()


def _given_server() -> PgServer:
    with psycopg.connect(os.environ[DSN]) as connection:
        return PgServer(os.environ[DSN], connection.info.server_version // 10_000, None)


def _embedded_server(servers: ServerPool, major: int) -> PgServer:
    try:
        return servers.pg_server(major)
    except maven.Unavailable as reason:
        pytest.skip(f"PostgreSQL {major}: {reason}")
