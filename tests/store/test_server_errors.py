"""Errors of a PostgreSQL server as a person reads them, without a server.

Invariants:
1. A lost connection and a collision of writers pass by themselves; a wrong setting does not.
2. What a person can mend comes with its remedy in one line that begins with the place.
3. A fault of this program stays as it is.
"""

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from evolve.core.errors import StoreError, UsageError
from evolve.store.postgresql.explanations import (
    explain,
    is_collision,
    is_cut,
    is_starting_or_stopping,
    refuses_login,
)

PLACE = "postgresql://db/runs"
NO_ADDRESS = 'connection failed: could not translate host name "db"'
NO_ROLE = 'connection failed: FATAL: role "ann" does not exist'
NO_PASSWORD = "connection failed: FATAL: password authentication failed for user ann"


def error(state: str, text: str = "words of the server") -> psycopg.Error:
    return psycopg.errors.lookup(state)(text)


@pytest.mark.parametrize(
    ("found", "passes"),
    [
        (error("08006"), True),
        (error("08001"), True),
        (error("57P01"), True),
        (error("57P03"), True),
        (error("57014"), False),  # a person or a time limit has cancelled the statement
        (error("40001"), False),
        (error("23505"), False),
        (psycopg.OperationalError(NO_ADDRESS), True),
        (psycopg.InterfaceError("the connection is closed"), True),
        (psycopg.ProgrammingError("no such parameter"), False),
        (ConnectionResetError("not of the driver"), False),
    ],
)
def test_a_connection_is_cut_by_its_own_faults_and_by_a_server_that_stops(found, passes):
    assert is_cut(found) is passes
    assert is_cut(DBAPIError("SELECT 1", {}, found)) is passes  # as SQLAlchemy hands it on


def test_a_transaction_that_was_in_anothers_way_is_a_collision():
    found = {state: is_collision(error(state)) for state in ("40001", "40P01", "40003", "57P01")}
    assert found == {"40001": True, "40P01": True, "40003": False, "57P01": False}


def test_a_server_that_starts_is_no_server_that_refuses():
    starting = psycopg.OperationalError("FATAL: the database system is starting up")
    assert is_starting_or_stopping(starting)
    assert not refuses_login(starting)
    assert refuses_login(psycopg.OperationalError(NO_ROLE))
    assert not is_starting_or_stopping(psycopg.OperationalError(NO_ROLE))


@pytest.mark.parametrize(
    ("found", "kind", "remedy"),
    [
        (psycopg.OperationalError(NO_PASSWORD), UsageError, "PGPASSWORD"),
        (psycopg.OperationalError(NO_ROLE), UsageError, "check the URL"),
        (psycopg.OperationalError(NO_ADDRESS), StoreError, "resume"),
        (error("57P01"), StoreError, "everything stored so far is kept"),
        (error("3F000"), StoreError, "CREATE SCHEMA"),
        (error("53100"), StoreError, "free some space"),
        (error("53300"), StoreError, "more memory or connections"),
        (error("42501"), StoreError, "the right to create tables"),
        (error("55P03"), StoreError, "wait for it or stop it"),
        (error("25006"), StoreError, "name the primary server"),
        (error("40001"), StoreError, "resume"),
    ],
)
def test_an_error_that_a_person_can_mend_names_the_remedy(found, kind, remedy):
    told = explain(PLACE, found)
    assert isinstance(told, kind)
    assert str(told).startswith(f"{PLACE}: ")
    assert remedy in str(told)
    assert "\n" not in str(told)


def test_a_fault_of_this_program_is_told_as_it_is():
    for fault in (error("42P01"), ValueError("no")):
        assert explain(PLACE, fault) is fault
