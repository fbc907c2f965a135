"""A model that cannot be had from the hub: one sentence that says why and what to do."""

from __future__ import annotations

from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from s2d2cli.config import compose
from s2d2cli.errors import CheckpointError
from s2d2cli.models.checkpoint import find_folder


def answered(kind, code):
    response = SimpleNamespace(status_code=code, headers={}, request=None)
    return kind("said the hub\nat length", response=response)


MISSING = errors.LocalEntryNotFoundError("cannot find the requested files")


@pytest.mark.parametrize(
    ("error", "offline", "token", "sentence"),
    [
        (answered(errors.GatedRepoError, 403), False, None, "is gated, and no token is set; accept its terms"),
        (answered(errors.GatedRepoError, 403), False, "hf_x", "is gated, and the token in use has no access; accept"),
        (answered(errors.RepositoryNotFoundError, 401), False, None, "nor on the hub, or it is private and no token"),
        (answered(errors.RevisionNotFoundError, 404), False, None, "has no revision 'abc' on the hub; model.revision"),
        (errors.HFValidationError("bad id"), False, None, "is neither a local folder nor a hub id such as"),
        (MISSING, False, None, "is not in the hub's cache at revision 'abc', and the hub cannot be reached; check"),
        (MISSING, True, None, "is not in the hub's cache at revision 'abc', and HF_HUB_OFFLINE forbids a download"),
        (errors.OfflineModeIsEnabled("offline"), True, None, "HF_HUB_OFFLINE forbids a download; unset it"),
        (
            OSError(28, "No space left on device"),
            False,
            None,
            "No space left on device); check the network and the disk",
        ),
        (answered(errors.HfHubHTTPError, 500), False, None, "is not to be had from the hub (said the hub); check"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_model_that_is_not_to_be_had(monkeypatch, error, offline, token, sentence):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: token)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    with pytest.raises(CheckpointError) as caught:
        find_folder("owner/model", "abc")
    told = str(caught.value)
    assert told.startswith("model 'owner/model' ") and sentence in told
    assert "\n" not in told and "hf_x" not in told


def test_the_revision_that_is_asked_for_is_the_one_that_is_loaded(monkeypatch, tmp_path):
    asked = []

    def download(repository, revision, allow_patterns):
        asked.append((repository, revision))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    config = compose(["model=sdar-8b", "model.revision=0123abc"])
    assert find_folder(config.model.source, config.model.revision) == tmp_path
    assert asked == [("JetLM/SDAR-8B-Chat", "0123abc")]
