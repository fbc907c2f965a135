"""What only bubblewrap gives: no network, no foreign files, no foreign processes; and how the sandbox is chosen."""

import os
import socket
import sys
from pathlib import Path

import pytest

from s2d2cli.errors import SandboxError
from s2d2cli.tasks import sandbox, sandbox_command
from s2d2cli.tasks.sandbox import Program, choose_sandbox, run_program
from tests.tasks.test_sandbox import NO_BWRAP, RIGHT, both, run

needs_bwrap = pytest.mark.skipif(bool(NO_BWRAP), reason=NO_BWRAP)


@needs_bwrap
def test_nothing_outside_its_folder_can_be_written():
    root = Path(sys.prefix)
    places = ["/", "/usr", "/home", str(Path(__file__).parent), str(root), str(root / "lib"), "/proc", str(Path.home())]
    code = f"""{RIGHT}
for place in {places!r}:
    try:
        open(place + '/s2d2-was-here', 'w')
    except OSError:
        continue
    raise SystemError(place)
open('inside', 'w').close()
open('/tmp/private', 'w').close()
"""
    assert run(code, kind="bwrap").status == "pass"
    assert not any((Path(place) / "s2d2-was-here").exists() for place in ["/tmp", *places])
    assert not Path("/tmp/private").exists()


def test_without_bwrap_files_are_as_safe_as_the_user_who_runs_it(tmp_path):
    """The documented gap: whoever closes it changes the text of sandbox.py too."""
    run(f"open({str(tmp_path / 'outside')!r}, 'w').close()", kind="process")
    assert (tmp_path / "outside").exists()


@needs_bwrap
def test_foreign_files_cannot_be_read(tmp_path):
    (tmp_path / "secret").write_text("x")
    for path in (tmp_path / "secret", Path(__file__), Path("/etc/passwd")):
        assert "FileNotFoundError" in run(f"open({str(path)!r})", kind="bwrap").message


def connects(kind):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        return run(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)\n{RIGHT}", kind=kind)


@needs_bwrap
def test_there_is_no_network():
    assert connects("process").status == "pass"
    assert "ConnectionRefusedError" in connects("bwrap").message
    outside = run("import socket\nsocket.create_connection(('192.0.2.1', 9), 5)", kind="bwrap")
    assert "Network is unreachable" in outside.message


@needs_bwrap
def test_other_processes_are_out_of_sight_and_reach():
    code = f"""import os
print(max(int(name) for name in os.listdir('/proc') if name.isdigit()))
try: os.kill({os.getpid()}, 0)
except ProcessLookupError: print('unknown')
{RIGHT}"""
    outcome = run(code, kind="bwrap")
    assert outcome.status == "pass"
    highest, parent = outcome.output.split()
    assert int(highest) < 10
    assert parent == "unknown"


@needs_bwrap
def test_even_root_cannot_raise_its_limits():
    code = """import resource
for kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
    try: resource.setrlimit(kind, (-1, -1))
    except ValueError: continue
    raise SystemError(kind)
"""
    assert run(code + RIGHT, kind="bwrap").status == "pass"


@both
def test_the_sandbox_that_is_asked_for_is_chosen(kind):
    assert choose_sandbox(kind) == kind


def test_auto_is_bwrap_where_it_works():
    assert choose_sandbox("auto") == ("process" if NO_BWRAP else "bwrap")


def test_an_unknown_sandbox_is_refused():
    with pytest.raises(SandboxError, match="one of auto, bwrap, process, got 'docker'"):
        choose_sandbox("docker")


def test_a_missing_bwrap_is_named(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    assert choose_sandbox("auto") == "process"
    with pytest.raises(SandboxError, match="no bwrap on the PATH.*sandbox=process"):
        choose_sandbox("bwrap")


def test_a_bwrap_that_is_not_allowed_to_work_is_named(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert choose_sandbox("auto") == "process"
    with pytest.raises(SandboxError, match="sandbox=bwrap must start.*No permissions to create new namespace"):
        choose_sandbox("bwrap")


def test_links_on_the_way_to_python_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "python").touch()
    (tmp_path / "version").symlink_to("real")
    (tmp_path / "python").symlink_to(tmp_path / "version" / "python")
    root = str(tmp_path)
    found = sandbox_command.links(f"{root}/python")
    assert found == [(f"{root}/python", f"{root}/version/python"), (f"{root}/version", "real")]


@needs_bwrap
def test_python_runs_through_links_outside_its_folders(monkeypatch, tmp_path):
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    sandbox_command.readable.cache_clear()
    assert run_program(Program(RIGHT, ["assert double(2) == 4"], sandbox="bwrap")).status == "pass"
    sandbox_command.readable.cache_clear()
