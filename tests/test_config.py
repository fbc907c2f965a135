"""What can be typed, what it becomes, and what is said when it cannot be."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from s2d2cli.config import compose, names_of, record, run_id
from s2d2cli.errors import ConfigError
from s2d2cli.folders import VARIABLE, files, package_folder
from s2d2cli.plain_yaml import as_yaml

MISTAKES = {
    "router=min_spam": "did you mean 'min_span'?",
    "rooter=min_span": "no setting 'rooter'; did you mean 'router'?",
    "decode.blocklength=8": "no 'blocklength' in decode; did you mean 'decode.block_length'?",
    "block_length=8": "no setting 'block_length'; did you mean 'decode.block_length'?",
    "decode.block_length=abc": "decode.block_length cannot take this value: Value 'abc' of type 'str'",
    "decode.block_length=4.5": "decode.block_length cannot take this value: Value '4.5' of type 'float'",
    "decode.block_length=4,8": "use `s2d2 sweep decode.block_length=4,8`",
    "limit=interval(0,1)": "holds several values",
    "router=always,never": "use `s2d2 sweep router=always,never`",
    "decode.block_length=0": "decode.block_length must be at least 1, got 0",
    "decode.denoising_steps=17": "must lie between 1 and decode.block_length=16, got 17",
    "decode.temperature=-1": "decode.temperature must be 0 (greedy) or more, got -1",
    "decode.temperature=inf": "decode.temperature must be a finite number, got inf",
    "unmask.threshold=inf": "unmask.threshold must be a finite number, got inf",
    "decode.top_p=nan": "decode.top_p must be a finite number, got nan",
    "verifier.ratio_threshold=-1": "verifier.ratio_threshold must be 0 or more, or left out, got -1",
    "threads=-1": "threads must lie between 0 (chosen by the model's size) and ",
    "threads=100000": "four per CPU core, got 100000",
    "results=''": "results must name a folder, got ''",
    "decode.top_p=0": "decode.top_p must lie in (0, 1], got 0",
    "decode.top_p=null": "decode.top_p cannot take this value",
    "decode.context=forward": "decode.context must be one of block, causal",
    "batch_size=0": "batch_size must be at least 1, got 0",
    "limit=0": "limit must be at least 1 or left out, got 0",
    "x==[1": "cannot read the override 'x==[1'",
    "hello": "cannot read the override 'hello'",
    "~router": "'~router' would delete a setting",
    "+decode.newkey=3": "'+decode.newkey=3' would add a setting",
    "++decode.block_length=3": "leave out '+' to set decode.block_length",
    "hydra.run.dir=x": "sets up Hydra itself",
    "hydra/launcher=ray": "sets up Hydra itself",
    "router=null": "router takes one of always, ",
    "router={tau_span: 3}": "router takes one of always, ",
    "router.tau_span=4": "router.tau_span is a setting of router=min_span, but router is always here",
    "model=custom": "model.source must be given",
    "seed=${sead}": "seed refers to something that is not there",
    "task=gms8k": "did you mean 'gsm8k'?",
}


@pytest.mark.parametrize("override", MISTAKES)
def test_a_mistake_gets_one_sentence(override):
    with pytest.raises(ConfigError) as caught:
        compose([override])
    assert MISTAKES[override] in str(caught.value)
    assert "\n" not in str(caught.value) and "append" not in str(caught.value) and "multirun" not in str(caught.value)


@pytest.mark.parametrize(
    ("choice", "override", "sentence"),
    [
        ("router=ucb", "router.beta=nan", "router.beta must be a finite number, got nan"),
        ("router=ucb", "router.beta=-1", "router.beta must be 0 or more, got -1"),
        ("router=score_threshold", "router.tau_score=inf", "router.tau_score must be a finite number, got inf"),
        ("router=score_threshold", "router.cost=-1", "router.cost must be 0 or more, got -1"),
        ("router=hysteresis", "router.cost=-1", "router.cost must be 0 or more, got -1"),
        ("router=min_span", "router.confidence=-1", "router.confidence must be 0 or more, or left out, got -1"),
        ("router=min_span", "router.confidence=-inf", "router.confidence must be a finite number, got -inf"),
        ("estimator=margin", "estimator.threshold=-1", "estimator.threshold must be 0 or more, got -1"),
        ("estimator=entropy_threshold", "estimator.threshold=-1", "estimator.threshold must be 0 or more, got -1"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(choice, override, sentence):
    with pytest.raises(ConfigError) as caught:
        compose([choice, override])
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("broken", ["decode.context=block", "decode.commit=separate"])
def test_a_sliding_window_needs_tokens_that_are_settled_one_by_one(broken):
    with pytest.raises(ConfigError, match=r"verifier\.form=sliding needs decode\.context=causal and decode\.commit="):
        compose(["verifier.form=sliding", broken])


def test_a_sliding_window_is_not_for_a_router_that_never_verifies():
    """It would change tokens under a run id in which the verifier does not count."""
    with pytest.raises(ConfigError, match=r"verifier\.form=sliding is for a router that verifies, got router=never"):
        compose(["router=never", "verifier.form=sliding"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["decode.sub_block_length=3", "decode.block_length=8"],
            "decode.sub_block_length must divide decode.block_length=8",
        ),
        (["decode.sub_block_length=0"], "decode.sub_block_length must divide decode.block_length=16"),
        (["decode.boundary=published"], "decode.boundary=published needs decode.commit=separate, got pending"),
        (["verifier.form=sliding", "decode.sub_block_length=4"], "verifier.form=sliding has no blocks to divide"),
        (["decoder=s2d2_single", "decode.sub_block_length=4"], "verifier=single needs decode.sub_block_length=null"),
    ],
)
def test_sub_blocks_and_boundaries_that_cannot_be(words, sentence):
    with pytest.raises(ConfigError) as caught:
        compose(words)
    assert str(caught.value).startswith(sentence)


FAST = {  # length of sub-blocks, router
    "fast_config_a": (4, "hysteresis"),
    "fast_config_b": (16, "hysteresis"),
    "fast_config_c": (None, "min_span"),
}


@pytest.mark.parametrize("model", ["fast-dllm-v2-1.5b", "fast-dllm-v2-7b"])
@pytest.mark.parametrize("name", FAST)
def test_the_fast_dllm_v2_presets(name, model):
    config = compose([f"model={model}", f"experiment={name}"])
    decode, router = config.decode, config.router
    assert (config.model.family, config.model.block_length, config.model.mask_token) == ("fast_dllm_v2", 32, "|<MASK>|")
    assert (decode.block_length, decode.context, decode.temperature, config.unmask.threshold) == (32, "block", 0.0, 0.9)
    assert (decode.sub_block_length, router.kind) == FAST[name]
    settings = (
        (router.tau_span,) if name == "fast_config_c" else (router.score, router.cost, router.tau_on, router.tau_off)
    )
    assert settings == ((8,) if name == "fast_config_c" else ("dynamic", 1.0, 1.0, -5.0))


LLADA2 = {  # mask and edit threshold, cost and tau of the router
    "llada2_conservative": ("s2d2", 0.95, 0.9, "score_threshold", 4.0, -5.0),
    "llada2_quality": ("s2d2", 0.7, 0.5, "score_threshold", 4.0, 0.0),
    "llada2_speed": ("editing", 0.5, 0.0, "never", None, None),
}


@pytest.mark.parametrize("model", ["llada2.0-mini", "llada2.1-mini"])
@pytest.mark.parametrize("name", LLADA2)
def test_the_llada2_presets(name, model):
    config = compose([f"model={model}", f"experiment={name}"])
    assert (config.model.family, config.model.block_length, config.model.mask_token) == ("llada2", 32, "<|mask|>")
    assert (config.decode.block_length, config.decode.context, config.decode.temperature) == (32, "block", 0.0)
    rule, router = config.unmask, config.router
    settings = (
        rule.threshold,
        rule.edit_threshold,
        router.kind,
        *(getattr(router, k, None) for k in ("cost", "tau_score")),
    )
    assert (config.decoder, *settings) == LLADA2[name]
    assert (rule.kind, rule.num_to_transfer, rule.max_post_steps) == ("edit_tokens", 1, 16)


@pytest.mark.parametrize("name", ["llada", "dream"])
def test_d2f_models_are_decoded_as_block_models_are(name):
    contexts = {"s2d2": "causal", "autoregressive": "causal", "static": "block", "dynamic": "block"}
    for decoder, context in contexts.items():
        config = compose([f"model=d2f-{name}", f"decoder={decoder}"])
        assert (config.model.family, config.decode.context) == (f"d2f_{name}", context)
        assert config.model.adapter.startswith("SJTU-Deng-Lab/D2F_")
        assert config.decode.block_length == (1 if decoder == "autoregressive" else 32)


D2F = {"d2f_dynamic": ("never", True), "d2f_min_span": ("min_span", True), "d2f_no_resample": ("min_span", False)}


@pytest.mark.parametrize("model", ["d2f-llada", "d2f-dream"])
@pytest.mark.parametrize("name", D2F)
def test_the_d2f_presets(name, model):
    config = compose([f"model={model}", f"experiment={name}"])
    assert (config.router.kind, config.verifier.resample) == D2F[name]
    assert (config.decode.block_length, config.decode.context, config.decode.temperature) == (32, "block", 0.0)
    rule = config.unmask
    assert (rule.kind, rule.threshold, rule.block_add_threshold) == ("pipelined", 0.9, 0.1)
    assert (rule.decoded_token_threshold, rule.min_tokens_per_step, rule.blocks_in_flight) == (0.95, 1, None)


FULL = {"llada-8b": "llada", "llada-1.5": "llada", "dream-7b": "dream"}


@pytest.mark.parametrize("name", FULL)
def test_models_that_attend_fully_have_one_context(name):
    for decoder in ("static", "sequential", "dynamic"):
        config = compose([f"model={name}", f"decoder={decoder}"])
        assert (config.model.family, config.decode.context, config.decode.cache) == (FULL[name], "full", "none")
        assert config.decode.block_length == 32
    assert compose([f"model={name}", "decoder=static", "decode.cache=dual"]).decode.cache == "dual"
    assert compose(["decoder=static"]).decode.context == "block"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "decode.context must be full for model.family=llada, .* no autoregressive mode, got causal; use decoder="),
        (["decoder=autoregressive"], "got causal; use decoder=static, sequential, dynamic or ssd"),
        (["decoder=s2d2_single"], "no autoregressive mode, got causal"),
        (["decode.context=full"], "verifier=self asks the autoregressive mode, and model.family=llada, .* has none"),
        (["decoder=s2d2_single", "decode.context=full"], "verifier=single needs decode.context=causal, got full"),
        (["decoder=dynamic", "router=min_span"], "verifier=self asks the autoregressive mode"),
        (["decoder=dynamic", "decode.context=block"], "decode.context must be full for .*, got block"),
        (["decoder=editing"], "unmask=edit_tokens needs a model trained to edit, and model.family=llada was not"),
        (["decoder=dynamic", "decode.cache=suffix"], "decode.cache must be one of none, prefix, dual, got 'suffix'"),
        (["decoder=dynamic", "model=tiny", "decode.context=full"], "full is for models that .* got model.family=sdar"),
    ],
)
def test_what_models_that_attend_fully_cannot_do(words, sentence):
    model = [] if "model=tiny" in words else ["model=llada-8b"]
    with pytest.raises(ConfigError, match=sentence) as caught:
        compose([*model, *words])
    assert "\n" not in str(caught.value)


def test_autoregressive_means_block_length_one():
    with pytest.raises(ConfigError, match="decoder=autoregressive means decode.block_length=1, got 8"):
        compose(["decoder=autoregressive", "decode.block_length=8"])


@pytest.mark.parametrize(
    "file", sorted(package_folder("conf").glob("*/*.yaml")), ids=lambda f: f"{f.parent.name}={f.stem}"
)
def test_every_file_of_conf_composes(file):
    two = dict.fromkeys(("draft_target", "simsd"), ["draft_model=tiny"])
    besides = {"custom": ["model.source=x"], **two, **dict.fromkeys(FULL, ["decoder=dynamic"])}
    config = compose([f"{file.parent.name}={file.stem}", *besides.get(file.stem, [])])
    if file.parent.name in ("model", "decoder"):  # the name in the file is the file's name
        assert {"model": config.model.name, "decoder": config.decoder}[file.parent.name] == file.stem


@pytest.mark.parametrize("group", ["router", "unmask", "estimator", "verifier", "task"])
def test_every_registered_option_composes(group):
    besides = {
        "chain": ["unmask=low_confidence_static"],  # it follows a rule that reveals just what it owes
        "draft_target": ["draft_model=tiny", "decode.context=causal"],
        "simsd": ["draft_model=tiny", "decode.context=block"],
    }
    assert names_of(group)
    for name in names_of(group):
        assert record(compose([f"{group}={name}", *besides.get(name, [])]))[group]["kind"] == name


def test_preset_yields_to_what_is_typed():
    config = compose(["decoder=s2d2", "router=min_span", "router.tau_span=4", "decode.block_length=8"])
    assert (config.router.kind, config.router.tau_span, config.decode.denoising_steps) == ("min_span", 4, 8)


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1).filter(str.strip))
@settings(max_examples=15, deadline=None)
def test_paths_arrive_as_typed(text):
    """hydra#1577, #2705, #2891: `=`, `#`, non-ASCII and `${` in a path."""
    config = compose(["model=custom"], {"model.source": text, "results": text})
    assert config.model.source == config.results == text


@pytest.mark.parametrize(
    "text", ["runs/epoch=999.ckpt", "a,b", "#1", "模型", "${oc.env:HOME}", 'it\'s "x"\\', "~/m [x]"]
)
def test_awkward_paths_arrive_as_typed(text):
    assert compose(["model=custom"], {"model.source": text}).model.source == text


def test_run_id_knows_settings_and_ignores_labels():
    base = compose([])
    assert run_id(base) == run_id(compose(["results=elsewhere"])) == run_id(compose(["decode.block_length=16"]))
    ids = {
        run_id(compose([o]))
        for o in ("batch_size=1", "limit=5", "router=never", "decode.temperature=0.5", "dtype=float16")
    }
    assert len(ids) == 5 and run_id(base) not in ids


def test_other_settings_find_no_finished_run():
    """ao#3073, lighteval#239: results of another threshold, revision or block length were handed out."""
    words = ("unmask.threshold=0.7", "unmask.threshold=0.9", "decode.block_length=4", "decode.block_length=8")
    revisions = ("model.revision=main", "model.revision=0123abc")
    ids = [run_id(compose(["decoder=dynamic", "model=sdar-8b", word])) for word in words + revisions]
    assert len(set(ids)) == len(ids)


def test_a_raised_task_version_is_another_run(monkeypatch):
    """SimPO#73: the same model gained three points with a newer task of the same name."""
    config = compose([])
    before = run_id(config)
    monkeypatch.setattr(type(config.task), "version", config.task.version + 1)
    assert run_id(config) == run_id(compose([])) != before


def test_record_is_plain_json_and_names_every_strategy():
    plain = record(compose([]))
    assert json.loads(json.dumps(plain)) == plain
    assert all(plain[group]["kind"] for group in ("router", "unmask", "estimator", "verifier", "task"))
    assert plain["task"]["version"] >= 1  # a changed protocol is another run


def test_yaml_reads_back_as_the_same_values():
    """omegaconf#296: a text like 10e2 came back as a number."""
    texts = {"model.source": "10e2", "model.name": "on", "results": "0x1: #"}
    config = compose(["model=custom", "model.stop_tokens=['1_0','null']"], texts)
    written = as_yaml(record(config))
    assert yaml.safe_load(written) == record(config)
    assert OmegaConf.to_container(OmegaConf.create(written)) == record(config)


def test_wheel_and_checkout_find_conf(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "s2d2cli"
    package.mkdir(parents=True)
    monkeypatch.setattr("s2d2cli.folders.__file__", str(package / "folders.py"))
    assert package_folder("conf") == package / "conf"
    (tmp_path / "site-packages" / "pyproject.toml").touch()
    assert package_folder("conf") == Path(tmp_path / "site-packages" / "conf")


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A user's folder, in use: a model, a shadowed preset, a router with other settings, an experiment, sweeps."""
    folder = tmp_path / "my conf, v=1"
    for name, text in {
        "model/mine.yaml": "name: mine\nsource: ./somewhere\nblock_length: 8\n",
        "decoder/dynamic.yaml": (package_folder("conf") / "decoder" / "dynamic.yaml")
        .read_text()
        .replace("decoder: dynamic", "decoder: dynamic\nunmask:\n  threshold: 0.33"),
        "router/eager.yaml": "defaults: [hysteresis, _self_]\ntau_on: 2.5\n",
        "experiment/tried.yaml": "# @package _global_\ndefaults:\n  - override /router: eager\nseed: 5\n",
        "sweeps/lengths.yaml": "grid:\n  decode.block_length: 4,8\n",
        "sweeps/default.yaml": "grid:\n  decode.block_length: 2,4,8\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def test_a_user_s_folder_adds_and_shadows(mine, monkeypatch):
    """hydra#2448, #3230, fairseq#2784: hydra.searchpath adds, and never shadows."""
    assert compose(["model=mine"]).decode.block_length == 8 and "mine" in names_of("model")
    assert compose(["decoder=dynamic"]).unmask.threshold == 0.33
    config = compose(["experiment=tried"])
    assert (config.router.kind, config.router.tau_on, config.seed) == ("hysteresis", 2.5, 5)
    assert files("sweeps")["default"] == mine / "sweeps" / "default.yaml" and "pareto_tiny" in files("sweeps")
    with pytest.raises(ConfigError, match="no model 'mien' among .*did you mean 'mine'"):
        compose(["model=mien"])
    monkeypatch.setenv(VARIABLE, "")
    assert compose(["decoder=dynamic"]).unmask.threshold == 0.85 and "mine" not in names_of("model")


def test_the_first_folder_wins(mine, tmp_path, monkeypatch):
    other = tmp_path / "other"
    (other / "model").mkdir(parents=True)
    (other / "model" / "mine.yaml").write_text("name: other\nsource: x/y\n")
    monkeypatch.setenv(VARIABLE, f"{other}:{mine}")
    assert compose(["model=mine"]).model.name == "other" and files("model")["mine"].is_relative_to(other)
    assert compose(["decoder=dynamic"]).unmask.threshold == 0.33


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: [\n", 'a configuration file must be YAML; it cannot be read in "'),
        ("nmae: x\nsource: y\n", "in model/broken.yaml: Key 'nmae' not in 'ModelConfig'"),
        (
            "name: x\nsource: y\nblock_length: long\n",
            "in model/broken.yaml: Value 'long' of type 'str' could not be converted",
        ),
    ],
)
def test_a_mistake_in_a_user_s_file_gets_one_sentence(mine, text, sentence):
    (mine / "model" / "broken.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        compose(["model=broken"])
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value", ["~/m/x.jsonl", "runs/epoch=9", "it's #1", "模型", "a,b", '$HOME `x` "y" \\', "x,y=1"]
)
def test_what_the_error_says_to_paste_does_it(value):
    """hydra#1577, #2705, #2891: the form that the sentence gives is accepted, by a shell and by us."""
    with pytest.raises(ConfigError) as caught:
        compose([f"task.data={value}"])
    if not str(caught.value).startswith("cannot read"):
        assert "use `s2d2 sweep" in str(caught.value) and value == "a,b"
        return
    pasted = str(caught.value).partition("stands in quotes, ")[2]
    typed = subprocess.run(["bash", "-c", f"printf %s {pasted}"], capture_output=True, text=True, check=True).stdout
    assert compose([typed]).task.data == value


def test_a_value_with_commas_has_three_readings():
    """cloudai#557: the sentence names all of them."""
    with pytest.raises(ConfigError, match=r"use `s2d2 sweep .*`.*model.stop_tokens=\[...\] for a list, or quotes for"):
        compose(["model.stop_tokens=a,b"])


@pytest.mark.parametrize("part", ["conf", "sweeps"])
def test_shipped_files_ask_nothing_of_hydra_main(part):
    """hydra#828, #2017: `${hydra:...}` is not set under compose."""
    found = [*package_folder(part).rglob("*.yaml")]
    assert found and not [file for file in found if "${hydra:" in file.read_text()]
