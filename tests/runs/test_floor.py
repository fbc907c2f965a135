"""A floor under the accuracy: all parts may do their work, and the answers be worse."""

from __future__ import annotations

from s2d2cli.config import compose
from s2d2cli.runs.evaluate import Models, evaluate


def test_the_shipped_model_is_as_good_as_it_was(tmp_path):
    """Ascend/sglang#250. It solves 98 % of all problems; 26 of the first 30 leave room for other arithmetic."""
    words = ["task=tiny_math", "limit=30", "decode.block_length=16", "batch_size=8", "device=cpu"]
    record = evaluate(compose(words, {"results": str(tmp_path)}), Models()).record
    assert record["n"] == 30 and record["accuracy"] >= 0.85
    assert record["alarms"]["empty"] == record["alarms"]["mask_token"] == 0
