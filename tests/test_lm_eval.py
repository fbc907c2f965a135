"""lm-evaluation-harness over our decoders: the same answers as `s2d2 eval`, and no number that means something else."""

import json
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import s2d2cli
from s2d2cli.config import DecodeConfig, compose
from s2d2cli.errors import ConfigError, PromptError
from s2d2cli.lm_eval.__main__ import main
from s2d2cli.lm_eval.wishes import Wishes, agreed, cut, read_wishes
from s2d2cli.runs.evaluate import Models, evaluate
from s2d2cli.runs.store import folder_of
from s2d2cli.tasks.numbers import find_answer

needs_lm_eval = pytest.mark.skipif(find_spec("lm_eval") is None, reason="needs lm-eval: pip install 's2d2[lm-eval]'")
MATH = Path(s2d2cli.__file__).parent / "assets" / "data" / "tiny_math.jsonl"
GREEDY = {"do_sample": False, "max_gen_toks": 48}


@pytest.mark.parametrize(
    ("asked", "wishes"),
    [
        ({}, Wishes()),
        ({"until": ["x"], "do_sample": False}, Wishes(temperature=0.0)),
        ({"do_sample": False, "temperature": 0.7, "top_p": 0.9}, Wishes(temperature=0.0)),
        ({"temperature": 0.0, "max_gen_toks": 1280}, Wishes(1280, 0.0)),
        ({"temperature": 0.6, "top_p": 0.95, "top_k": 20}, Wishes(None, 0.6, 0.95, 20)),
        ({"do_sample": True, "temperature": 1, "num_beams": 1}, Wishes(temperature=1.0)),
        ({"max_new_tokens": 8}, Wishes(8)),
        ({"max_new_tokens": 8, "max_gen_toks": 9}, Wishes(9)),
    ],
)
def test_what_a_task_asks_for_is_understood(asked, wishes):
    assert read_wishes("t", asked) == wishes


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"num_beams": 4}, "task t asks for num_beams=4"),
        ({"repetition_penalty": 1.1}, "repetition_penalty=1.1"),
        ({"do_sample": True}, "do_sample without a temperature; say which"),
    ],
)
def test_what_no_decoder_can_do_is_refused(asked, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_wishes("t", asked)


def test_the_task_decides_what_the_user_left_open():
    decode = DecodeConfig(max_new_tokens=256)
    found = agreed("t", Wishes(100, 0.7, 0.9, 5), decode, [])
    assert (found.max_new_tokens, found.temperature, found.top_p, found.top_k) == (100, 0.7, 0.9, 5)
    assert agreed("t", Wishes(), decode, ["decode.max_new_tokens"]) == decode
    same = DecodeConfig(temperature=0.7)
    assert agreed("t", Wishes(temperature=0.7), same, ["decode.temperature"]).temperature == 0.7


@pytest.mark.parametrize(
    ("wishes", "decode", "given", "sentence"),
    [
        (Wishes(temperature=0.0), {"temperature": 1.0}, ["decode.temperature"], "temperature=0.0.*temperature=1.0"),
        (Wishes(temperature=0.0), {"temperature": 1.0}, [], "--gen_kwargs do_sample=True,temperature=1.0"),
        (Wishes(temperature=1.0), {}, ["decode.temperature"], "leave that setting out"),
        (Wishes(max_new_tokens=1024), {"max_new_tokens": 512}, ["decode.max_new_tokens"], "max_gen_toks=512"),
    ],
)
def test_a_task_that_contradicts_the_user_is_refused(wishes, decode, given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        agreed("t", wishes, DecodeConfig(**decode), given)


@pytest.mark.parametrize(
    ("until", "rest"),
    [(None, "a b\nc"), ([], "a b\nc"), ("b", "a "), (["c", "b"], "a "), (["b", "c"], "a "), (["", "z"], "a b\nc")],
)
def test_text_is_cut_at_the_first_stop_string(until, rest):
    assert cut("a b\nc", until) == rest


def test_without_lm_eval_the_command_says_what_to_install(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == "lm_eval"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "s2d2cli.lm_eval.model", raising=False)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 4
    assert "pip install 's2d2[lm-eval]'" in capsys.readouterr().err


def made(**settings):
    return import_module("s2d2cli.lm_eval.model").S2D2("tiny", **settings)


@pytest.fixture(scope="module")
def greedy():
    return made(batch_size=4)


def request(prompt, asked=GREEDY, document=0, task="t"):
    from lm_eval.api.instance import Instance

    return Instance("generate_until", {}, (prompt, dict(asked)), 0, metadata=(task, document, 1))


def ask(lm, requests):
    return lm.generate_until(requests, disable_tqdm=True)


def questions(count, lm):
    rows = [json.loads(line) for line in MATH.read_text(encoding="utf-8").splitlines()[:count]]
    return [lm.apply_chat_template([{"role": "user", "content": row["question"]}]) for row in rows]


@needs_lm_eval
def test_answers_do_not_depend_on_batch_or_order():
    settings = {"decode.temperature": 1.0, "decode.max_new_tokens": 48}
    one, many = made(batch_size=1, **settings), made(batch_size=5, **settings)
    requests = [request(text, {}, number) for number, text in enumerate(questions(6, one))]
    alone = ask(one, requests)
    assert list(reversed(ask(many, requests[::-1]))) == alone
    assert ask(many, requests[2:4]) == alone[2:4]
    assert made(seed=1, **settings).generate_until(requests) != alone


@needs_lm_eval
def test_repetitions_of_one_document_are_drawn_anew():
    lm = made(**{"decode.temperature": 1.0})
    asked = request(questions(1, lm)[0], {"max_gen_toks": 48})
    first, second = ask(lm, [asked, asked])
    assert first != second
    assert ask(lm, [asked]) == [first]


@needs_lm_eval
def test_each_request_gets_its_own_length_and_stop_strings(greedy):
    prompt = questions(1, greedy)[0]
    texts = ask(
        greedy,
        [
            request(prompt, GREEDY | {"max_gen_toks": 4}),
            request(prompt, GREEDY),
            request(prompt, GREEDY | {"until": ["="]}),
        ],
    )
    assert texts[1].startswith(texts[0])
    assert len(greedy.model.encode(texts[0])) <= 4 < len(greedy.model.encode(texts[1]))
    assert texts[2] == texts[1].partition("=")[0] != texts[1]


@needs_lm_eval
def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_decoded(greedy):
    before = greedy.tally.tokens
    with pytest.raises(PromptError, match="must fit the context.*sample long/7"):
        ask(greedy, [request(questions(1, greedy)[0]), request("many words " * 2000, GREEDY, 7, "long")])
    assert greedy.tally.tokens == before


@needs_lm_eval
def test_a_task_of_likelihoods_is_refused(greedy):
    for method in (greedy.loglikelihood, greedy.loglikelihood_rolling):
        with pytest.raises(ConfigError, match="task arc_easy asks how likely.*output_type generate_until"):
            method([request("x", task="arc_easy")])


@needs_lm_eval
def test_chat_templates(greedy):
    turn = {"role": "user", "content": "Hello"}
    assert greedy.apply_chat_template([turn]).endswith("<|im_start|>assistant\n")
    begun = greedy.apply_chat_template([turn, {"role": "assistant", "content": "So"}], add_generation_prompt=False)
    assert begun.endswith("<|im_start|>assistant\nSo")
    assert "im_start" in greedy.chat_template(True)
    assert greedy.chat_template(False) == ""
    assert "tiny" in greedy.tokenizer_name and "/" not in greedy.tokenizer_name
    with pytest.raises(ConfigError, match="write --apply_chat_template alone"):
        greedy.chat_template("tool_use")


@needs_lm_eval
@pytest.mark.parametrize(
    ("model", "settings", "sentence"),
    [
        ("", {}, "must name a model, as in model=tiny"),
        ("tiny", {"batch_size": "auto"}, "whole number"),
        ("tiny", {"task": "gsm8k"}, "task is a setting of s2d2 eval"),
        ("tiny", {"task.data": "x"}, "task.data is a setting of s2d2 eval"),
        ("tiny", {"router.tau_spam": 4, "router": "min_span"}, "tau_span"),
        ("tinny", {}, "tiny"),
    ],
)
def test_settings_that_cannot_be_are_refused(model, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        import_module("s2d2cli.lm_eval.model").S2D2(model, **settings)


@needs_lm_eval
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_nobody_asked_for_is_not_needed():
    assert made(device="cuda:0").model.device.type == "cpu"
    with pytest.raises(ConfigError, match="CUDA"):
        made(device="cuda:1")


@needs_lm_eval
def test_values_arrive_as_lm_eval_reads_them():
    """Its command line makes numbers of numbers and -1.0 of -1."""
    lm = made(**{"seed": 3.0, "router": "score_threshold", "router.cost": 0.5, "verifier.resample": False})
    assert (lm.config.seed, lm.config.router.cost, lm.config.verifier.resample) == (3, 0.5, False)
    assert lm.config.decode.max_new_tokens == 256
    info = lm.get_model_info()["s2d2"]
    assert info["settings"]["router"] == {"kind": "score_threshold", "cost": 0.5} | info["settings"]["router"]
    json.dumps(info)


TASK = {
    "task": "local_math",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": str(MATH)}},
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer.split('####')[-1].strip()}}",
    "generation_kwargs": {"until": ["</s>"], "max_gen_toks": 128, "do_sample": False},
    "metric_list": [{"metric": "right", "aggregation": "mean", "higher_is_better": True}],
}


@needs_lm_eval
def test_the_accuracy_is_that_of_s2d2_eval(monkeypatch, tmp_path):
    """The same prompts, the same decoder: the same texts, and so the same share of right answers."""
    offline(monkeypatch, tmp_path)
    import_module("s2d2cli.lm_eval.model")
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    def right(row, texts):
        found = find_answer(texts[0])
        return {"right": float(found is not None and found.value == find_answer(row["answer"]).value)}

    words = {"decoder": "s2d2", "decode.block_length": 16}
    theirs = simple_evaluate(
        model="s2d2",
        model_args={"model": "tiny", **words},
        tasks=[TASK | {"process_results": right}],
        task_manager=TaskManager(include_defaults=False),
        limit=20,
        apply_chat_template=True,
        batch_size=8,
        bootstrap_iters=0,
    )
    config = compose([*(f"{key}={value}" for key, value in words.items()), "limit=20"], {"results": str(tmp_path)})
    ours = evaluate(config, Models()).record
    rows = folder_of(config).rows().values()
    texts = {row["id"].partition("/")[2]: row["text"] for row in rows}
    samples = theirs["samples"]["local_math"]
    assert [sample["resps"][0][0] for sample in samples] == [texts[str(sample["doc_id"])] for sample in samples]
    assert theirs["results"]["local_math"]["right,none"] == pytest.approx(ours["accuracy"])
    assert 0 < ours["accuracy"] < 1
    assert theirs["config"]["s2d2"]["tokens"] == sum(row["tokens"] for row in rows)


def offline(monkeypatch, folder):
    """The data set is a file, and lm-eval's copy of it goes to `folder`."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    for name in ("HF_HOME", "HF_DATASETS_CACHE"):
        monkeypatch.setenv(name, str(folder / "cache"))


@needs_lm_eval
@pytest.mark.slow  # lm-eval reads all its task files first, for a quarter of a minute
def test_the_command_line(monkeypatch, tmp_path):
    offline(monkeypatch, tmp_path)
    metric = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}
    pattern = {"function": "regex", "regex_pattern": "#### (-?[0-9.,]+)"}
    filters = [{"name": "number", "filter": [pattern, {"function": "take_first"}]}]
    (tmp_path / "math.yaml").write_text(json.dumps(TASK | {"metric_list": [metric], "filter_list": filters}))
    words = ["--model", "s2d2", "--tasks", str(tmp_path / "math.yaml"), "--limit", "4", "--apply_chat_template"]
    words += ["--output_path", str(tmp_path / "out.json"), "--model_args"]
    done = command([*words, "model=tiny,decoder=s2d2,decode.block_length=16"])
    assert done.returncode == 0, done.stderr
    [file] = tmp_path.glob("out*.json")
    result = json.loads(file.read_text())
    assert 0 <= result["results"]["local_math"]["exact_match,number"] <= 1
    assert result["config"]["s2d2"]["settings"]["decode"]["block_length"] == 16
    done = command([*words, "model=tiny,decode.temperature=1.0"])
    assert done.returncode == 2
    assert "error: task local_math asks for temperature=0.0" in done.stderr
    assert "Traceback" not in done.stderr


def command(words):
    return subprocess.run(
        [sys.executable, "-m", "s2d2cli.lm_eval", *words], capture_output=True, text=True, timeout=300, check=False
    )
