"""How the ways in which a token comes to be are drawn: Okabe and Ito's colours, told apart by readers with any colour
vision, and a second sign (bold, underlined, italic) for a terminal without colours."""

from __future__ import annotations

MASK = "░░"
COLORS = {
    "unmasked": "#56B4E9",
    "accepted": "#009E73",
    "resampled": "#D55E00",
    "threshold": "#E69F00",
    "high_confidence": "#F0E442",
    "bonus": "#CC79A7",
    "edited": "#0072B2",
}
STYLES = {
    "masked": "dim",
    "drafted": "italic #999999",
    "unmasked": COLORS["unmasked"],
    "accepted": f"bold {COLORS['accepted']}",
    "resampled": f"bold underline {COLORS['resampled']}",
    "threshold": f"underline {COLORS['threshold']}",
    "high_confidence": f"underline {COLORS['high_confidence']}",
    "bonus": f"bold {COLORS['bonus']}",
    "edited": f"bold italic {COLORS['edited']}",
}
WORDS = {  # others say it themselves
    "threshold": "kept for its ratio",
    "high_confidence": "kept for its confidence",
    "bonus": "the verifier's own, not a replacement",
}
MARKS = {
    **{"unmasked": "u", "accepted": "a", "resampled": "r", "threshold": "t", "high_confidence": "c", "bonus": "b"},
    "edited": "e",
}
# Viridis, from early to late: even in brightness, so it reads in grey too
RAMP = ("#440154", "#472D7B", "#3B528B", "#2C728E", "#21918C", "#28AE80", "#5EC962", "#ADDC30", "#FDE725")
DARK = 4  # these many first ones need white letters
CONTROL = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
CONTROL |= {127: 0x2421, **dict.fromkeys(range(128, 160), 0xFFFD)}


def visible(text: str) -> str:
    """A model's text may hold control characters, and those would command the terminal; here they are pictures."""
    return text.translate(CONTROL)


def word(source: str) -> str:
    return WORDS.get(source, source)


def early_to_late(step: int, last: int) -> str:
    """The style of a token decided in this step, when the last one is `last`."""
    place = round(step / max(last, 1) * (len(RAMP) - 1))
    return f"{'white' if place < DARK else 'black'} on {RAMP[place]}"
