"""Who may ask: tokens, hosts, interfaces.

Invariants:
- with a token, nothing but the health and the schema is answered without it;
- without one, only this machine is served, and only under its own name;
- the token is in no process, no file and no line that the server makes.
"""

import base64
import inspect
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from evolve.app import device
from evolve.cli.commands.judge import serve
from evolve.cli.commands.judge.serve import TOKEN_VARIABLE, compose, require_token
from evolve.core.errors import UsageError
from evolve.serve.app import OPEN_PATHS
from evolve.serve.token import read_token
from tests.serve.serving import serving, submission

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("guarded"), token=TOKEN) as running:
        yield running


@pytest.fixture(scope="module")
def folder_of_open(tmp_path_factory):
    return tmp_path_factory.mktemp("open")


@pytest.fixture(scope="module")
def open_server(folder_of_open):
    """One without a token."""
    with serving(folder_of_open) as running:
        yield running


def operations(server) -> list[tuple[str, str]]:
    schema = httpx.get(f"{server.url}/openapi.json").json()
    return [(method, path) for path, found in schema["paths"].items() for method in found]


def test_nothing_is_answered_without_the_token(server):
    asked = [pair for pair in operations(server) if pair[1] not in OPEN_PATHS]
    assert len(asked) > 10
    for method, path in asked:
        response = httpx.request(method, server.url + path.replace("{", "").replace("}", ""))
        assert response.status_code == 401, (method, path)
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header",
    [
        "Bearer wrong",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer",
        TOKEN,
        "Basic !!!",
        "Basic " + base64.b64encode(b"user").decode(),
        "Basic " + base64.b64encode(f"{TOKEN}:".encode()).decode(),
    ],
)
def test_a_wrong_token_is_none(server, header):
    response = httpx.get(f"{server.url}/v1/tasks", headers={"Authorization": header})
    assert response.status_code == 401


def test_the_token_can_stand_in_an_url_for_clients_that_know_no_headers(server):
    url = server.url.replace("http://", f"http://any:{TOKEN}@")
    assert httpx.get(f"{url}/v1/tasks").status_code == 200


def test_health_and_schema_are_open(server):
    for path in OPEN_PATHS:
        assert httpx.get(server.url + path).status_code == 200, path


def test_the_token_reaches_neither_database_nor_workers_nor_logs(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    from evolve.evaluation.local import worker_environment

    assert TOKEN not in json.dumps(worker_environment("."))
    with serving(tmp_path, token=TOKEN) as server:
        server.submit("speedup 2.0")
        httpx.get(f"{server.url}/v1/tasks?token={TOKEN}", headers={"Authorization": "Bearer no"})
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert any(path.name == "serve.db" for path in files)
        assert not [path for path in files if TOKEN.encode() in path.read_bytes()]


def test_a_server_without_a_token_answers_to_its_own_name_only(open_server):
    for host, status in (("evil.example", 403), ("localhost:80", 200)):
        response = open_server.ask.get("/v1/tasks", headers={"Host": host})
        assert response.status_code == status


def test_a_web_page_cannot_post_a_form_to_it(open_server):
    """Browsers send these kinds without asking the server first."""
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        response = open_server.ask.post(
            "/v1/jobs", content=json.dumps(submission()), headers={"Content-Type": kind}
        )
        assert response.status_code == 422, kind


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_interfaces_are_refused_without_a_token(host):
    with pytest.raises(UsageError, match="needs a token"):
        require_token(host, None)
    require_token(host, TOKEN)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_this_machine_is_served_without_one(host):
    require_token(host, None)


def test_the_token_comes_from_the_file_or_the_environment(tmp_path):
    file = token_file(tmp_path, f"{TOKEN}\n# what this is for\n")
    assert read_token(str(file), {}, variable=TOKEN_VARIABLE) == TOKEN
    there = {TOKEN_VARIABLE: f" {TOKEN} "}
    assert read_token(None, there, variable=TOKEN_VARIABLE) == TOKEN
    assert read_token(None, {}, variable=TOKEN_VARIABLE) is None


@pytest.mark.parametrize("content", ["short", "", "\n", "ungültiges-token-mit-umlaut"])
def test_a_token_that_is_none_is_refused(tmp_path, content):
    file = token_file(tmp_path, content)
    with pytest.raises(UsageError, match="token_file"):
        read_token(str(file), {}, variable=TOKEN_VARIABLE)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o622, 0o666])
def test_a_token_that_others_may_read_or_change_is_refused(tmp_path, mode):
    file = token_file(tmp_path, TOKEN)
    file.chmod(mode)
    with pytest.raises(UsageError, match=f"chmod 600 {file}"):
        read_token(str(file), {}, variable=TOKEN_VARIABLE)


def token_file(folder: Path, content: str) -> Path:
    file = folder / "token"
    file.write_text(content)
    file.chmod(0o600)
    return file


def test_the_file_of_jobs_is_its_owners_alone(open_server, folder_of_open):
    assert (folder_of_open / "serve.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("port=many", "port=many: it is a whole number"),
        ("prot=1", "prot.*`evolve serve --help`"),
        ("--port", "'--port' is not key=value; `evolve serve --help`"),
        ("device=abacus", "device can be: auto, cpu, cuda"),
        ("references=some", r"references: .*'some'.* \[known, any\]"),
        ("serve", "'serve' is not key=value; `evolve serve --help`"),
    ],
)
def test_a_word_that_cannot_be_is_refused_with_what_can(word, said):
    with pytest.raises(UsageError, match=said):
        compose([word])


def test_help_lists_every_setting():
    done = subprocess.run(
        [sys.executable, "-m", "evolve.cli.main", "serve", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in compose([]):
        assert f"{name}:" in done.stdout


def test_no_setting_is_without_an_effect():
    """Every key is asked for by its name; `device` and `sandbox` by what starts the judge."""
    text = "".join(map(inspect.getsource, (serve, device)))
    for name in compose([]):
        assert f'config["{name}"]' in text, name
