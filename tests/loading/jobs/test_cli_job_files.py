"""Job files: what is wrong with one is said with file, target and key; what is right becomes the job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock import __version__
from penstock.core.errors import UsageError
from penstock.core.values.job import Housekeeping, LoadRules, Request
from penstock.core.values.table import TableName
from penstock.loading.jobs import read_job_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.command import Finished

    Run = Callable[..., Finished]


@pytest.fixture
def job_path(tmp_path: Path) -> Path:
    """Provide where the job file of a test is."""
    return tmp_path / "job.toml"


def _read(path: Path, text: str) -> Request:
    path.write_text(text)
    return read_job_file(path)


def test_full_target_becomes_a_job(job_path: Path) -> None:
    """Every key ends where its option would."""
    found = _read(
        job_path,
        r"""
        to = "dbname=x"
        role = "loader"
        sessions = 3
        [[target]]
        sources = ["a.csv", "s3://bucket/b.csv", "/c.csv", "-"]
        into = 'staging."T"'
        format = "csv"
        delimiter = '\t'
        null = ["", "-"]
        header = false
        columns = ["a", "b"]
        set = {source = "{filename}"}
        skip = "b"
        create = true
        """,
    )
    (target,) = found.job.targets
    assert (found.access.to, found.access.role, found.job.sessions) == ("dbname=x", "loader", 3)
    assert target.sources == (str(job_path.parent / "a.csv"), "s3://bucket/b.csv", "/c.csv", "-")
    assert target.into == TableName(schema="staging", name="T")
    assert (target.dialect.delimiter, target.dialect.null, target.dialect.header) == ("\t", ("", "-"), False)
    assert (target.columns, target.set, target.skip) == (("a", "b"), {"source": "{filename}"}, ("b",))


def test_keys_of_a_file_are_the_options(job_path: Path) -> None:
    """All of them, by their names; and what is typed beside the file wins over it."""
    job_path.write_text(
        """
        on_error = "reject"
        max_rejects = 7
        max_record = "512MB"
        retry_for = "1h"
        atomic = true
        changed = "load"
        indexes = "rebuild"
        vacuum = false
        checkpoint = true
        wait = false
        tunnel = "localhost:6000"
        settings = "auto"
        spool = true
        reject_file = "bad.csv"
        [[target]]
        sources = "a.csv"
        into = "t"
        """
    )
    request = read_job_file(job_path)
    assert request.access.tunnel == "localhost:6000"
    assert request.housekeeping == Housekeeping(settings="auto", spool=True, reject_file=job_path.parent / "bad.csv")
    assert request.job.rules == LoadRules(
        on_error="reject",
        max_rejects=7,
        max_record=512_000_000,
        retry_for=3600.0,
        atomic=True,
        changed="load",
        indexes="rebuild",
        vacuum=False,
        checkpoint=True,
        wait=False,
    )
    typed = {"max_rejects": "0", "retry_for": "5s", "max_record": "2MB"}
    rules = read_job_file(job_path, typed).job.rules
    assert (rules.max_rejects, rules.retry_for, rules.max_record) == (0, 5.0, 2_000_000)
    assert rules.indexes == "rebuild"


def test_reject_file_of_a_job_starts_from_its_folder(
    job_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path in full stays, ~ is the home directory, and what is typed starts from the current directory."""
    monkeypatch.setenv("HOME", "/home/me")
    paths = {"bad.csv": tmp_path / "bad.csv", "/x/bad.csv": Path("/x/bad.csv"), "~/bad.csv": Path("/home/me/bad.csv")}
    for written, expected in paths.items():
        text = f'on_error = "reject"\nreject_file = "{written}"\n[[target]]\nsources = "a"\ninto = "t"'
        assert _read(job_path, text).housekeeping.reject_file == expected
    typed = read_job_file(job_path, {"reject_file": "bad.csv"})
    assert typed.housekeeping.reject_file == Path("bad.csv")


def test_settings_of_a_file_are_taken_and_a_check_leaves_them_alone(
    penstock: Run, database18: str, job_path: Path
) -> None:
    """A profile that is not there is an error of the load, as the option's is."""
    (job_path.parent / "a.csv").write_text("a\n1\n")
    job_path.write_text('settings = "quick"\n[[target]]\nsources = "a.csv"\ninto = "t"\ncreate = true\n')
    finished = penstock("load", str(job_path), "--to", database18)
    assert (finished.code, finished.err.splitlines()[0]) == (2, 'error: invalid value "quick" for --settings')
    assert penstock("load", str(job_path), "--to", database18, "--check").code == 0
    assert penstock("load", str(job_path), "--to", database18, "--settings", "none").code == 0


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[[target]]\nsources = 'a'\nitno = 't'", 'target 1: unknown key "itno"', 'Perhaps you meant "into".'),
        ("seesions = 2\n[[target]]\nsources = 'a'\ninto = 't'", 'top level: unknown key "seesions"', '"sessions"'),
        (
            "into = 't'\n[[target]]\nsources = 'a'\ninto = 't'",
            'top level: unknown key "into"',
            "belongs in a [[target]]",
        ),
        ("[[target]]\nsources = 'a'", 'target 1: key "into" is missing', "Add into ="),
        ("sessions = 2", 'top level: key "target" is missing', "[[target]]"),
        ("[target]\nsources = 'a'\ninto = 't'", 'top level: key "target" is missing', "[[target]]"),
        ("[[target]]\nsources = []\ninto = 't'", "target 1: no source to load", None),
        (
            "[[target]]\nsources = 'a'\ninto = 't'\nheader = 'yes'",
            'target 1: invalid value "yes" for key "header"',
            "true or false",
        ),
        (
            "sessions = 0\n[[target]]\nsources = 'a'\ninto = 't'",
            'top level: invalid value "0" for key "sessions"',
            "from 1 upwards",
        ),
    ],
)
def test_mistake_is_named_with_its_place(job_path: Path, text: str, message: str, hint: str | None) -> None:
    """File, target, key, and what was probably meant."""
    with pytest.raises(UsageError) as caught:
        _read(job_path, text)
    assert caught.value.message.startswith(f'job file "{job_path}": {message}')
    assert (hint or "") in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "message", "rest"),
    [
        ('penstock = "7.2"\nnotify = 1', "penstock 7.2 or a later one is needed", "It does not know: notify, relabel."),
        ('penstock = "7.2.1"', "penstock 7.2.1 or a later one is needed", "Install penstock 7.2.1, or a later one."),
        ('penstock = "one"', 'invalid value "one" for key "penstock"', 'a version such as "1.2"'),
        ("penstock = 1", 'invalid value "1" for key "penstock"', 'a version such as "1.2"'),
        (f'penstock = "{__version__}"', 'target 1: unknown key "relabel"', ""),
    ],
)
def test_file_for_a_later_version_is_refused_with_its_unknown_keys(
    job_path: Path, text: str, message: str, rest: str
) -> None:
    """And with the version to install; a file for this version, or an earlier one, is read."""
    with pytest.raises(UsageError) as caught:
        _read(job_path, f"{text}\n[[target]]\nsources = 'a'\ninto = 't'\nrelabel = 1\n")
    assert message in caught.value.message
    assert rest in f"{caught.value.detail} {caught.value.hint}"


def test_text_that_is_not_toml_is_refused_with_its_line(job_path: Path) -> None:
    """The parser's own place."""
    with pytest.raises(UsageError, match="is not TOML") as caught:
        _read(job_path, "to = \n")
    assert "line 1" in (caught.value.detail or "")


def test_byte_order_mark_is_passed_over(job_path: Path) -> None:
    """Editors of Windows write one."""
    assert _read(job_path, "\ufeff[[target]]\nsources = 'a.csv'\ninto = 't'\n").job.targets[0].into.name == "t"


@pytest.mark.parametrize("is_in_current_directory", [True, False])
def test_source_may_begin_with_the_home_directory(
    job_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_current_directory: bool
) -> None:
    """From wherever the job is run: no shell has expanded it."""
    monkeypatch.chdir(job_path.parent)
    monkeypatch.setenv("HOME", "/home/ann")
    path = job_path.relative_to(job_path.parent) if is_in_current_directory else job_path
    job = _read(path, "[[target]]\nsources = '~/a.csv'\ninto = 't'\n").job
    assert job.targets[0].sources == ("/home/ann/a.csv",)


def test_missing_job_file_is_refused(job_path: Path) -> None:
    """By its name."""
    with pytest.raises(UsageError, match="could not read job file"):
        read_job_file(job_path)


def test_missing_job_file_is_a_missing_source(penstock: Run, job_path: Path) -> None:
    """As for every other source that cannot be found."""
    finished = penstock("load", str(job_path))
    assert (finished.code, finished.err) == (4, f'error: job file "{job_path}" does not exist\n')


def test_bad_table_name_is_named_with_its_target(job_path: Path) -> None:
    """The second of two."""
    with pytest.raises(UsageError, match="is not a table name") as caught:
        _read(job_path, "[[target]]\nsources = 'a'\ninto = 't'\n[[target]]\nsources = 'a'\ninto = 'a.b.c'")
    assert caught.value.message == f'job file "{job_path}": target 2: "a.b.c" is not a table name'


def test_password_of_a_job_file_is_shown_nowhere(penstock: Run, job_path: Path) -> None:
    """Not in an error about the very key that holds it, nor in what is printed of the job."""
    job_path.write_text("to = ['postgresql://ann:s3cret@h/d']\n[[target]]\nsources = 'a'\ninto = 't'")
    finished = penstock("load", str(job_path), "--json")
    assert finished.code == 2
    assert "s3cret" not in finished.err + finished.out
    assert "s3cret" not in repr(_read(job_path, "to = 's3cret'\n[[target]]\nsources = 'a'\ninto = 't'"))


@pytest.mark.parametrize("option", [["--create"], ["--no-header"], ["--set", "a=b"], ["--delimiter", "|"]])
def test_options_of_a_target_are_refused_beside_a_job_file(penstock: Run, job_path: Path, option: list[str]) -> None:
    """It would be unclear which target they mean."""
    finished = penstock("load", str(job_path), *option)
    assert finished.code == 2
    assert finished.err.startswith(f"error: {option[0]} cannot be used with a job file\n")


def test_hint_for_a_new_column_names_the_keys_of_a_job(penstock: Run, database18: str, job_path: Path) -> None:
    """An option of one target cannot be typed beside a job file; what the hint names, the job takes."""
    (job_path.parent / "t.csv").write_text("id,zzzz\n1,a\n")
    text = "[[target]]\nsources = 't.csv'\ninto = 't'\n"
    job_path.write_text(text)
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int)")
    refused = penstock("load", str(job_path), "--to", database18, "--json")
    assert refused.code == 6
    assert "add_columns = true" in refused.err
    assert "--" not in refused.err
    assert "--" not in refused.object["error"]["hint"]
    job_path.write_text(f"{text}add_columns = true\n")
    assert penstock("load", str(job_path), "--to", database18).code == 0
    typed = penstock("load", str(job_path.parent / "t.csv"), "--into", "t", "--add-column", "--to", database18)
    assert "Perhaps you meant --add-columns" in typed.err


def test_job_loads_several_tables(penstock: Run, database18: str, job_path: Path) -> None:
    """Sources are found beside the file, and --to overrides its `to`."""
    for name in ("one", "two"):
        (job_path.parent / f"{name}.csv").write_text("id,name\n1,a\n")
    targets = [
        f"[[target]]\nsources = '{name}.csv'\ninto = 'public.{name}'\ncreate = true\n" for name in ("one", "two")
    ]
    job_path.write_text("to = 'nowhere'\nsessions = 'auto'\n" + "".join(targets))
    finished = penstock("load", str(job_path), "--to", database18)
    assert finished.code == 0, finished.err
    assert finished.out.startswith("loaded 2 rows into 2 tables in ")
    assert finished.err.startswith("dialect of public.one: csv, ")
    with psycopg.connect(database18) as connection:
        assert connection.execute("SELECT * FROM one, two").fetchall() == [("1", "a", "1", "a")]
