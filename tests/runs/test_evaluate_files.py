"""What a run finds on disk when it begins: other weights, damaged records, folders that cannot be written to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from s2d2cli.config import ModelConfig, compose
from s2d2cli.errors import CheckpointError, ConfigError
from s2d2cli.models import checkpoint
from s2d2cli.runs import evaluate as module
from s2d2cli.runs import store
from s2d2cli.runs.environment import model_files
from s2d2cli.runs.evaluate import Models, evaluate, finished
from s2d2cli.runs.tables import entries
from tests.runs import doubles
from tests.test_cli import s2d2 as s2d2

TINY = Path(checkpoint.__file__).parents[1] / "assets" / "tiny"


def config_for(folder: Path, *overrides: str, **texts: str):
    return compose(["task=echo", "batch_size=2", *overrides], {"results": str(folder / "results"), **texts})


def edit(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def model_at(source: str, revision: str | None = None) -> ModelConfig:
    return ModelConfig(source=source, revision=revision)


def stop_at(monkeypatch, sample: str, config) -> store.RunFolder:
    doubles.use(monkeypatch, fail_at=sample)
    with pytest.raises(RuntimeError):
        evaluate(config, Models())
    doubles.use(monkeypatch)
    return store.folder_of(config)


@pytest.fixture
def mine(tmp_path):
    return Path(shutil.copytree(TINY, tmp_path / "mine"))


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_other_weights_in_the_same_folder_are_refused(tmp_path, monkeypatch, mine, name):
    doubles.use(monkeypatch)
    config = config_for(tmp_path, **{"model.source": str(mine)})
    before = evaluate(config, Models()).record["model_files"]
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= before.keys() and finished(config)

    edit(mine / name, at=-2)
    sentence = rf"begun with other weights .*\({name}\); move that folder away, or use another --results"
    monkeypatch.setattr(module, "load_model", None)
    for ask in (finished, lambda config: evaluate(config, Models())):
        with pytest.raises(CheckpointError, match=sentence):
            ask(config)


def test_a_begun_run_does_not_go_on_with_other_weights(tmp_path, monkeypatch, mine):
    config = config_for(tmp_path, **{"model.source": str(mine)})
    folder = stop_at(monkeypatch, "echo/3", config)
    edit(mine / "model.safetensors", at=-2)
    with pytest.raises(CheckpointError, match="other weights"):
        evaluate(config, Models())
    assert len(folder.rows()) == 2


def test_the_weights_are_known_without_a_download_and_without_reading_all(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert model_files(model_at("nobody/no-such-model")) is None
    assert model_files(model_at("package:tiny")) == checkpoint.fingerprint(TINY)
    assert model_files(model_at(str(tmp_path))) is None  # a folder without weights: the loader says what is missing

    monkeypatch.setattr(checkpoint, "MIB", 1 << 10)
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(100_000))
    seen = {checkpoint.fingerprint(tmp_path)["model.safetensors"]["sha256"]}
    for at in (0, -1):
        edit(file, at)
        seen.add(checkpoint.fingerprint(tmp_path)["model.safetensors"]["sha256"])
    assert len(seen) == 3


def test_an_adapter_is_among_the_weights(tmp_path):
    model = model_at("package:tiny")
    model.adapter = str(tmp_path)
    assert model_files(model) is None
    (tmp_path / "adapter_config.json").write_text("{}")
    file = tmp_path / "adapter_model.safetensors"
    file.write_bytes(bytes(100))
    before = model_files(model)
    assert before.keys() - checkpoint.fingerprint(TINY).keys() == {f"adapter/{one.name}" for one in tmp_path.iterdir()}
    edit(file, -1)
    assert model_files(model) != before


def test_a_hub_checkpoint_is_known_by_what_the_cache_holds(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    cached, commit = tmp_path / "models--owner--mine", "a" * 40
    assert model_files(model_at("owner/mine")) is None
    shutil.copytree(TINY, cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    for revision in (None, commit):
        assert model_files(model_at("owner/mine", revision)) == checkpoint.fingerprint(TINY)
    (cached / "snapshots" / commit / "model.safetensors").unlink()  # a download that was broken off
    assert model_files(model_at("owner/mine")) is None


def test_the_accuracy_of_a_part_is_called_that(tmp_path, monkeypatch):
    config = config_for(tmp_path)
    record = stop_at(monkeypatch, "echo/3", config).record()
    assert record["accuracy"] == 0.5 and record["interval"] is None
    words = "0.500 on 2 of 6 so far, the shortest prompts first: not comparable"
    assert dict(entries(record))["accuracy"] == words
    assert "95 % interval" in dict(entries(evaluate(config, Models()).record))["accuracy"]


@pytest.mark.parametrize("text", ["{}", '{"schema": 2}', '{"schema": 2, "status": "success"}', '{"status": "success"}'])
def test_a_damaged_record_is_named(tmp_path, monkeypatch, text):
    doubles.use(monkeypatch)
    config = config_for(tmp_path)
    folder = evaluate(config, Models()).folder
    (folder / "run.json").write_text(text)
    for ask in (finished, lambda config: evaluate(config, Models())):
        with pytest.raises(ConfigError, match=r"run.json is damaged, it has no 'run_id'.*; delete that file"):
            ask(config)
    (folder / "run.json").unlink()
    assert evaluate(config, Models()).decoded == 0


@pytest.mark.parametrize("torn", [None, '{"schema": 2, "sta'])
def test_a_lost_record_is_made_again_from_the_rows(tmp_path, monkeypatch, torn):
    doubles.use(monkeypatch)
    config = config_for(tmp_path)
    first = evaluate(config, Models())
    (first.folder / "run.json").unlink()
    if torn:
        (first.folder / "run.json").write_text(torn)
    monkeypatch.setattr(module, "load_model", None)
    again = evaluate(config, Models()).record
    assert (again["n"], again["accuracy"], again["speed"]) == (6, 0.5, first.record["speed"])
    assert again["environment"]["dtype"] == "float32" and again["environment"]["device"]
    assert again["first_prompt"] == again["warm_up"] == "unknown" and again["model_files"]
    assert "None" not in str(entries(again))


def test_a_lost_record_of_a_part_is_that_of_the_call_that_goes_on(tmp_path, monkeypatch):
    config = config_for(tmp_path)
    folder = stop_at(monkeypatch, "echo/3", config)
    (folder.path / "run.json").unlink()
    again = evaluate(config, Models())
    assert again.resumed == 2 and again.record["resumed_with"] == []
    assert again.record["first_prompt"].startswith("<user>") and "decoded once" in again.record["warm_up"]


def test_a_row_that_lacks_fields_is_decoded_again(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    config = config_for(tmp_path)
    file = evaluate(config, Models()).folder / "samples.jsonl"
    rows = file.read_text().split("\n")[:-1]
    rows[0] = json.dumps({"id": json.loads(rows[0])["id"]})
    file.write_text("\n".join([*rows, "[]", "3"]) + "\n")
    again = evaluate(config, Models())
    assert (again.resumed, again.decoded, again.record["n"]) == (5, 1, 6)


@pytest.mark.parametrize("results", ["/proc/x", "/dev/null", "/dev/null/x"])
def test_a_folder_that_cannot_be_written_to_is_refused_before_the_model(tmp_path, monkeypatch, results):
    doubles.use(monkeypatch)
    monkeypatch.setattr(module, "load_model", None)
    config = compose(["task=echo"], {"results": results})
    with pytest.raises(ConfigError, match="must be a folder that can be written to: .*; choose another --results"):
        evaluate(config, Models())


def test_asking_whether_a_folder_can_be_written_to_makes_none(tmp_path):
    store.need_writable(tmp_path / "a" / "b")
    store.need_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="choose another --out"):
        store.need_writable(Path("/proc/x/y"))


@pytest.mark.parametrize("command", ["report", "arness", "sweep"])
def test_out_that_names_a_file_is_refused(s2d2, monkeypatch, tmp_path, command):
    """lm-evaluation-harness#2927: x.json became a folder."""
    doubles.use(monkeypatch)
    (tmp_path / "x.json").write_text("mine")
    assert s2d2("eval", "task=echo") == 0
    words = [] if command == "report" else ["task=echo", *(["decode.block_length=2,4"] if command == "sweep" else [])]
    assert s2d2(command, *words, "--out", "x.json") == 2
    assert "'x.json' must be a folder that can be written to: File exists; choose another --out" in s2d2.err
    assert (tmp_path / "x.json").read_text() == "mine"


def test_lines_end_at_line_feeds_only(tmp_path, monkeypatch):
    doubles.use(monkeypatch)
    monkeypatch.setattr(doubles.ByteModel, "text", lambda self, ids: "a\u2028b\u0085c\rd")
    config = config_for(tmp_path)
    folder = evaluate(config, Models()).folder
    assert len(store.RunFolder(folder).rows()) == 6 and evaluate(config, Models()).decoded == 0
