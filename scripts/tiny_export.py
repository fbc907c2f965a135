"""Write a training checkpoint in its published format, and the held-out problems in the benchmarks' formats.

python scripts/tiny_export.py runs/tiny/stage4.pt --name tiny --assets s2d2cli/assets
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tiny_data import FAMILIES
from tiny_eval import held_out, load
from tiny_layouts import LAYOUTS, config_of
from tiny_model import TinyModel
from tiny_tokenizer import END_ID, PAD_ID, render, save_tokenizer
from tokenizers import Tokenizer

from s2d2cli.config import ModelConfig, RunConfig
from s2d2cli.models import load_model

HELD_OUT_SIZES = {"math": 500, "code": 200, "instruct": 200}


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def export_model(model: TinyModel, tokenizer: Tokenizer, family: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    layout, weights = LAYOUTS[family], {name: tensor.detach().float() for name, tensor in model.state_dict().items()}
    write_json(folder / "config.json", config_of(layout, model.shape))
    write_json(folder / "generation_config.json", {"eos_token_id": [END_ID, PAD_ID], "pad_token_id": PAD_ID})
    published = {name: tensor.contiguous() for name, tensor in layout.tensors(weights, model.shape)}
    save_file(published, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # the library writes it for the owner alone
    save_tokenizer(tokenizer, folder)


@torch.inference_mode()
def check_export(model: TinyModel, family: str, folder: Path) -> float:
    """The largest difference of logits, under a causal mask, from transformers' native class as s2d2 loads it.

    The text side must agree as well.
    """
    problem, source = held_out("math", 1)[0], ModelConfig(folder.name, str(folder.absolute()), family)
    exported = load_model(RunConfig(model=source, device="cpu", dtype="float32"))
    text = exported.chat_prompt(problem.messages)
    if text != render(problem.messages):
        raise RuntimeError(f"the chat template writes {text!r}, training saw {render(problem.messages)!r}")
    tokens_BQ = torch.tensor([exported.tokenizer(text + problem.answer)["input_ids"]])
    positions_BQ = torch.arange(tokens_BQ.shape[1])[None]
    ours = model(tokens_BQ, positions_BQ, positions_BQ[:, None, :] <= positions_BQ[:, :, None])
    return (ours - exported.network(tokens_BQ).logits).abs().max().item()


def write_problems(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for family in FAMILIES:
        rows = [json.dumps(problem.record) for problem in held_out(family, HELD_OUT_SIZES[family])]
        (folder / f"tiny_{family}.jsonl").write_text("\n".join(rows) + "\n")


def export(checkpoint: Path, name: str, assets: Path) -> None:
    model, tokenizer, family = load(checkpoint)
    export_model(model, tokenizer, family, assets / name)
    write_problems(assets / "data")
    difference = check_export(model, family, assets / name)
    print(f"exported to {assets / name}; largest difference from transformers' own class {difference:.1e}")
    if difference >= 1e-4:
        raise RuntimeError(f"logits differ by {difference}; they must agree to 1e-4")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="stage4.pt in the training folder")
    parser.add_argument("--name", default="tiny", help="the model's folder among the assets")
    parser.add_argument("--assets", type=Path, default=Path("s2d2cli/assets"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    export(args.checkpoint, args.name, args.assets)


if __name__ == "__main__":
    main()
