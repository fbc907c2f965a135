"""A colour and a marker for every decoder, the same in all figures."""

from __future__ import annotations

from collections.abc import Iterable

# Okabe and Ito's colours, told apart by readers with any colour vision; the marker says the same once more.
STYLES = {
    "autoregressive": ("#000000", "*"),
    "static": ("#56B4E9", "s"),
    "dynamic": ("#0072B2", "o"),
    "sequential": ("#999999", "v"),
    "s2d2 never": ("#CC79A7", "P"),
    "s2d2 always": ("#D55E00", "D"),
    "s2d2 min_span": ("#009E73", "^"),
}
OTHERS = (("#E69F00", "X"), ("#F0E442", "h"), ("#882255", "<"), ("#44AA99", ">"), ("#AA4499", "p"))


def styles_for(decoders: Iterable[str]) -> dict[str, tuple[str, str]]:
    known = list(STYLES)
    names = sorted(set(decoders), key=lambda name: (known.index(name) if name in STYLES else len(known), name))
    new = [name for name in names if name not in STYLES]
    extra = {name: OTHERS[i % len(OTHERS)] for i, name in enumerate(new)}
    return {name: STYLES.get(name) or extra[name] for name in names}
