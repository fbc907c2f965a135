"""Write a training checkpoint in SDAR's published format, and the held-out problems in the benchmarks' formats.

python scripts/tiny_export.py runs/tiny/stage4.pt --assets s2d2cli/assets
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tiny_data import FAMILIES
from tiny_eval import held_out, load
from tiny_model import TinyModel
from tiny_tokenizer import END_ID, MASK_ID, PAD_ID, render, save_tokenizer
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

HELD_OUT_SIZES = {"math": 500, "code": 200, "instruct": 200}
BLOCK_SIZE = 16  # the middle of the trained block lengths, and the default when decoding


def config_of(model: TinyModel) -> dict:
    shape = model.shape.as_config()
    return {
        "architectures": ["SDARForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "block_size": BLOCK_SIZE,
        "eos_token_id": END_ID,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "mask_token_id": MASK_ID,
        "max_position_embeddings": 2048,
        "max_window_layers": shape["num_hidden_layers"],
        "model_type": "sdar",
        "pad_token_id": PAD_ID,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "use_cache": True,
        "use_sliding_window": False,
        **shape,
    }


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def export_model(model: TinyModel, tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config_of(model))
    write_json(folder / "generation_config.json", {"eos_token_id": [END_ID, PAD_ID], "pad_token_id": PAD_ID})
    weights = {name: tensor.detach().float().contiguous() for name, tensor in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # the library writes it for the owner alone
    save_tokenizer(tokenizer, folder)


def native_logits(folder: Path, tokens_BQ: Tensor) -> Tensor:
    """What plain transformers computes from the exported files."""
    config = json.loads((folder / "config.json").read_text())
    foreign = ("architectures", "block_size", "mask_token_id", "model_type", "torch_dtype")
    config = {key: value for key, value in config.items() if key not in foreign}
    native = Qwen3ForCausalLM(Qwen3Config(**config)).eval()
    missing, unexpected = native.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    if unexpected or missing not in ([], ["lm_head.weight"]):  # tied: the head is the embedding
        raise RuntimeError(f"the export does not fit Qwen3ForCausalLM: missing {missing}, unexpected {unexpected}")
    native.tie_weights()
    return native(tokens_BQ).logits


@torch.inference_mode()
def check_export(model: TinyModel, folder: Path) -> float:
    """The largest difference of logits under a causal mask; the text side must agree as well."""
    problem = held_out("math", 1)[0]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(problem.messages, tokenize=False, add_generation_prompt=True)
    if text != render(problem.messages):
        raise RuntimeError(f"the chat template writes {text!r}, training saw {render(problem.messages)!r}")
    tokens_BQ = torch.tensor([tokenizer(text + problem.answer)["input_ids"]])
    positions_BQ = torch.arange(tokens_BQ.shape[1])[None]
    ours = model(tokens_BQ, positions_BQ, positions_BQ[:, None, :] <= positions_BQ[:, :, None])
    return (ours - native_logits(folder, tokens_BQ)).abs().max().item()


def write_problems(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for family in FAMILIES:
        rows = [json.dumps(problem.record) for problem in held_out(family, HELD_OUT_SIZES[family])]
        (folder / f"tiny_{family}.jsonl").write_text("\n".join(rows) + "\n")


def export(checkpoint: Path, assets: Path) -> None:
    model, tokenizer = load(checkpoint)
    export_model(model, tokenizer, assets / "tiny")
    write_problems(assets / "data")
    difference = check_export(model, assets / "tiny")
    print(f"exported to {assets}; largest difference from Qwen3ForCausalLM {difference:.1e}")
    if difference >= 1e-4:
        raise RuntimeError(f"logits differ by {difference}; they must agree to 1e-4")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="stage4.pt in the training folder")
    parser.add_argument("--assets", type=Path, default=Path("s2d2cli/assets"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    export(args.checkpoint, args.assets)


if __name__ == "__main__":
    main()
