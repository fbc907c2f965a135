"""How much of SimSD's acceptance is a drafted token that the target sees while it judges that very token?

Decodes word problems with the shipped pair. At every check each drafted token is judged three times: as it stands, with
a mask in its place, and with the draft model's second choice in its place. Without a leak the three verdicts are one.

    python scripts/simsd_leak.py --limit 100
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from s2d2cli.config import compose
from s2d2cli.decode import Request, build_decoder
from s2d2cli.decode.quadrants import lay_out
from s2d2cli.decode.simsd import SimSD
from s2d2cli.models import load_model

if TYPE_CHECKING:
    from s2d2cli.decode.session import Session
    from s2d2cli.decode.state import DraftStep, Verdict

SHOWN = ("itself", "a mask", "second choice")


@dataclass
class Probe(SimSD):
    """SimSD that asks again what the target says of each drafted token when it shows another in its place."""

    probs: dict[str, list[Tensor]] = field(default_factory=lambda: {name: [] for name in SHOWN})
    agrees: dict[str, list[Tensor]] = field(default_factory=lambda: {name: [] for name in SHOWN})

    def verify(self, draft: DraftStep, session: Session, verify_B: Tensor) -> Verdict:
        verdict = super().verify(draft, session, verify_B)
        if verdict.window is not None:
            places = verdict.window.index_BS, verdict.window.checked_BS
            second_BL = draft.logits_BLV.topk(2).indices[..., 1]
            hidden_BL = torch.full_like(second_BL, session.model.mask_id)
            for name, other_BL in zip(SHOWN, (draft.tokens_BL, hidden_BL, second_BL), strict=True):
                for place in range(places[0].shape[1]):
                    self.ask(name, draft, other_BL, places, place, session)
        return verdict

    def ask(
        self,
        name: str,
        draft: DraftStep,
        other_BL: Tensor,
        places: tuple[Tensor, Tensor],
        place: int,
        session: Session,
    ) -> None:
        """What the target says at the place-th mask, `other` standing where its token was drafted."""
        index_B1, real_B = places[0][:, place, None], places[1][:, place]
        shown_BL = draft.tokens_BL.scatter(1, index_B1, other_BL.gather(1, index_B1))
        plan = lay_out(session.layout, session.state, replace(draft, tokens_BL=shown_BL), places, self.mask == "exact")
        logits_BV = session.model.forward(plan, session.cache)[:, place]
        token_B1 = draft.tokens_BL.gather(1, index_B1)
        self.probs[name].append(logits_BV.softmax(-1).gather(1, token_B1)[real_B, 0])
        self.agrees[name].append((logits_BV.argmax(-1) == token_B1[:, 0])[real_B])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=100, help="word problems")
    parser.add_argument("--block-length", type=int, default=8)
    options = parser.parse_args()
    words = ["decoder=simsd", "draft_model=tiny-draft", f"decode.block_length={options.block_length}"]
    config = compose([*words, "decode.max_new_tokens=100"])
    config.task.prepare(False)
    model = load_model(config)
    samples = config.task.samples(options.limit)
    requests = [Request(s.id, model.encode(model.chat_prompt(s.messages))) for s in samples]
    print(f"{'mask':10s} {'in its place':14s} {'checks':>7s} {'accepted':>9s} {'mean q':>7s}")
    for mask in ("published", "exact"):
        probe = Probe(mask)
        list(build_decoder(replace(config, verifier=probe)).session(model, requests, width=16).results())
        for name in SHOWN:
            agrees, probs = torch.cat(probe.agrees[name]).double(), torch.cat(probe.probs[name])
            print(f"{mask:10s} {name:14s} {len(agrees):7d} {agrees.mean():9.4f} {probs.mean():7.4f}")


if __name__ == "__main__":
    main()
