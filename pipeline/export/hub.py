"""Upload a prepared folder to the Hugging Face Hub. Nothing else in Sesame goes online.

Try it: sesame publish model=mine/ner licence=mit repo=me/ner --upload
"""

import os
from pathlib import Path
from typing import Any, Protocol

from data_prep.errors import SesameError, UsageError

SERVER_FAULT = 500  # HTTP statuses from here on say nothing about the request


class Hub(Protocol):
    """The part of `huggingface_hub.HfApi` that is used."""

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> Any: ...

    def upload_folder(self, *, repo_id: str, folder_path: str) -> Any: ...


def open_hub() -> Hub:
    """Return the Hub with the token of $HF_TOKEN.

    Raises UsageError if the token is not set, or if the user forbids the network.
    """
    token = os.environ.get("HF_TOKEN")
    if not token:
        raise UsageError("--upload: set HF_TOKEN to a token that may write to your repositories")
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        raise UsageError(
            "--upload: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set to 1, which forbids it; "
            "unset both"
        )
    hub: Hub = HfApi(token=token)
    return hub


def upload(out: Path, repo: str, hub: Hub) -> None:
    """Upload a prepared folder to a repository, which is made private if it is new.

    Raises SesameError if the Hub refuses it or cannot be reached.
    """
    try:
        hub.create_repo(repo, private=True, exist_ok=True)
        hub.upload_folder(repo_id=repo, folder_path=str(out))
    except Exception as error:  # errors of the network have no common class but this
        status = getattr(getattr(error, "response", None), "status_code", None)
        is_refused = isinstance(error, ValueError) or (status or SERVER_FAULT) < SERVER_FAULT
        what = type(error).__name__ if status is None else f"HTTP {status}"
        said = (
            f"the Hub refused the upload ({what}); check the name and the rights of your token"
            if is_refused
            else f"the Hub was not reached, or the connection broke ({what}); check the network"
        )
        raise SesameError(f"repo={repo}: {said}, then give the same command again") from error
