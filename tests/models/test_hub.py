"""Models from the hub: what is told before a download, and the sentence when one cannot be had or does not fit."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants, errors

from s2d2cli.config import ModelConfig, RunConfig, compose
from s2d2cli.errors import CheckpointError
from s2d2cli.models import find_adapter, load_model, memory
from s2d2cli.models.checkpoint import find_folder
from tests.conftest import GOLDEN


def answered(kind, code):
    response = SimpleNamespace(status_code=code, headers={}, request=None)
    return kind("said the hub\nat length", response=response)


MISSING = errors.LocalEntryNotFoundError("cannot find the requested files")


@pytest.mark.parametrize(
    ("error", "offline", "token", "sentence"),
    [
        (answered(errors.GatedRepoError, 403), False, None, "is gated, and no token is set; accept its terms"),
        (answered(errors.GatedRepoError, 403), False, "hf_x", "is gated, and the token in use has no access; accept"),
        (answered(errors.RepositoryNotFoundError, 401), False, None, "nor on the hub, or it is private and no token"),
        (answered(errors.RevisionNotFoundError, 404), False, None, "has no revision 'abc' on the hub; a revision"),
        (errors.HFValidationError("bad id"), False, None, "is neither a local folder nor a hub id such as"),
        (MISSING, False, None, "is not in the hub's cache at revision 'abc', and the hub cannot be reached; check"),
        (MISSING, True, None, "is not in the hub's cache at revision 'abc', and HF_HUB_OFFLINE forbids a download"),
        (errors.OfflineModeIsEnabled("offline"), True, None, "HF_HUB_OFFLINE forbids a download; unset it"),
        (
            OSError(28, "No space left on device"),
            False,
            None,
            "No space left on device); check the network and the disk",
        ),
        (answered(errors.HfHubHTTPError, 500), False, None, "is not to be had from the hub (said the hub); check"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_model_that_is_not_to_be_had(monkeypatch, error, offline, token, sentence):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: token)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    with pytest.raises(CheckpointError) as caught:
        find_folder("owner/model", "abc")
    told = str(caught.value)
    assert told.startswith("model 'owner/model' ") and sentence in told
    assert "\n" not in told and "hf_x" not in told


def test_the_revision_that_is_asked_for_is_the_one_that_is_loaded(monkeypatch, tmp_path, caplog):
    asked = []

    def download(repository, revision, dry_run=False, **_):
        asked.append((repository, revision))
        return [SimpleNamespace(file_size=84_000_000, will_download=True)] if dry_run else str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    config = compose(["model=sdar-8b", "model.revision=0123abc"])
    assert find_folder(config.model.source, config.model.revision) == tmp_path and find_adapter(config.model) is None
    assert set(asked) == {("JetLM/SDAR-8B-Chat", "0123abc")}
    config = compose(["model=d2f-llada", "model.adapter_revision=4567def", "decoder=static"])
    assert find_adapter(config.model) == tmp_path
    assert asked[-1] == ("SJTU-Deng-Lab/D2F_LLaDA_Instruct_8B_Lora", "4567def")
    assert caplog.messages[-1] == "downloading SJTU-Deng-Lab/D2F_LLaDA_Instruct_8B_Lora: 84.0 MB"


SHA, CHILD = "0" * 40, "from s2d2cli.models.checkpoint import find_folder; print(find_folder('owner/model', None))"


class Hub(BaseHTTPRequestHandler):
    """Enough of a hub: one repository of two files."""

    files: ClassVar = {"config.json": b"{}", "model.safetensors": bytes(2_500_000), "README.md": bytes(9_000_000)}

    def do_GET(self) -> None:
        content = self.files.get(self.path.rpartition("/")[2].partition("?")[0])
        if content is None:
            tree = [
                {"type": "file", "path": name, "size": len(held), "oid": "b" * 40} for name, held in self.files.items()
            ]
            known = {"id": "owner/model", "modelId": "owner/model", "sha": SHA, "siblings": [], "tags": []}
            content = json.dumps(tree if "/tree/" in self.path else known).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", SHA)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def hub(tmp_path):
    """The environment of a process that knows no other hub."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_port}"
        yield {**os.environ, "HF_ENDPOINT": here, "HF_HOME": str(tmp_path), "NO_PROXY": "*", "HF_HUB_DISABLE_XET": "1"}
        server.shutdown()


def test_the_size_of_a_download_is_told_before_it_starts(hub):
    """Of the files that will be fetched, on one line; nothing when they are there, or where nothing is fetched."""

    def told(**more: str) -> tuple[list[str], str]:
        command = [sys.executable, "-c", CHILD]
        done = subprocess.run(command, env=hub | more, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stderr.splitlines() if "ownloading owner" in line], done.stdout

    lines, folder = told()
    assert lines == ["downloading owner/model: 2.5 MB"]
    assert sorted(path.name for path in Path(folder.strip()).iterdir()) == ["config.json", "model.safetensors"]
    assert told() == told(HF_HUB_OFFLINE="1") == ([], folder)


@pytest.mark.parametrize(
    ("dtype", "needed", "advice"), [("float32", 4, ", dtype=bfloat16, or"), ("bfloat16", 2, ", or")]
)
def test_a_model_larger_than_the_memory_is_refused_before_its_weights_are_fetched(
    monkeypatch, tmp_path, dtype, needed, advice
):
    config = json.loads((GOLDEN / "llada2" / "checkpoint" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_experts": 4096, "moe_intermediate_size": 1280}))
    asked = []

    def download(repository, allow_patterns, **_):
        asked.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1_500_000_000)
    model = ModelConfig(name="big", source="owner/model", family="llada2")
    with pytest.raises(CheckpointError) as caught:
        load_model(RunConfig(model=model, device="cpu", dtype=dtype))
    size = round(3 * 4096 * 3 * 64 * 1280 * needed / 1e9, 1)
    assert f"model big need {size} GB of memory in {dtype}, and 1.5 GB are free on cpu; " in str(caught.value)
    assert advice in str(caught.value) and asked == [["config.json", "adapter_config.json"]]


def test_free_memory_is_what_the_system_says():
    free = memory.free_bytes(torch.device("cpu"))
    assert free is None or 1e7 < free < 1e15


def test_where_the_system_does_not_tell_nothing_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "none")
    assert memory.free_bytes(torch.device("cpu")) is None
    load_model(RunConfig(model=ModelConfig(name="tiny", source="package:tiny"), device="cpu"))
