"""Plain values as YAML that every reader takes for the same values."""

from __future__ import annotations

import re
from typing import Any

import yaml


def as_yaml(plain: dict[str, Any]) -> str:
    return yaml.dump(plain, Dumper=QuotingDumper, sort_keys=False, allow_unicode=True)


class QuotingDumper(yaml.SafeDumper):
    """PyYAML leaves the text 10e2 bare, and other readers take it for a number: quote all but plain words."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        plain = re.fullmatch(r"[A-Za-z][\w./-]*", text)
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


QuotingDumper.add_representer(str, QuotingDumper.represent_text)
