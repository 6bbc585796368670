"""The hub's own library, imported when it is needed, and its errors in our words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tandem.errors import EngineError, HubError, SettingError


def library() -> Any:
    """huggingface_hub. EngineError where it is not installed."""
    try:
        import huggingface_hub
        import huggingface_hub.errors  # noqa: F401
        import huggingface_hub.utils  # noqa: F401
    except ImportError as error:
        raise EngineError(
            "huggingface_hub is not installed.",
            "it, to share runs",
            "pip install 'tandem-rl[hub]'.",
        ) from error
    return huggingface_hub


def client() -> Any:
    """What speaks to the hub, at HF_ENDPOINT where that is set."""
    from tandem.version import __version__

    return library().HfApi(
        endpoint=os.environ.get("HF_ENDPOINT") or None,
        library_name="tandem-rl",
        library_version=__version__,
    )


def expect_token() -> None:
    """HubError where nobody is logged in."""
    if library().get_token() is None:
        raise HubError(
            "there is no token of the hub here.",
            "one that may write, of huggingface.co/settings/tokens",
            "hf auth login; or set HF_TOKEN.",
        )


@contextmanager
def told(repo: str, revision: str | None = None) -> Iterator[None]:
    """What the hub's library raises meanwhile, as an error of ours: SettingError for a name that
    no repository can have, HubError for all else."""
    errors = library().errors
    try:
        yield
    except errors.HFValidationError as error:
        raise SettingError(
            f"repo={repo!r}: {_first(error)}",
            "the name of a repository",
            "give it as in 'user/ppo-CartPole-v1'.",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise HubError(
            f"{repo} has no revision {revision!r}.",
            "a branch, a tag or a commit of it",
            "leave it out, for the newest.",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise HubError(
            f"there is no repository {repo} that you may read.",
            "the name of one that is public, or private and yours",
            "check the name; for a private one log in (hf auth login) or set HF_TOKEN.",
        ) from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", 0)
        if status in (401, 403):
            raise HubError(
                f"the hub refuses it: {_first(error)}",
                f"a token that may do this with {repo}",
                "log in as who may (hf auth login), or set HF_TOKEN.",
            ) from error
        raise HubError(
            f"the hub answers {status or 'with an error'}: {_first(error)}",
            "a request that it takes",
            "try again later, or follow what it says.",
        ) from error
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        raise _unreachable(error) from error
    except errors.HfHubHTTPError.__bases__[0] as error:  # of the HTTP library that it uses
        raise _unreachable(error) from error


def _unreachable(error: BaseException) -> HubError:
    where = os.environ.get("HF_ENDPOINT") or "huggingface.co"
    return HubError(
        f"{where} cannot be reached: {type(error).__name__}: {_first(error)}",
        "a network that leads there",
        "check the network, the proxy, and HF_HUB_OFFLINE and HF_ENDPOINT if they are set.",
    )


def _first(error: BaseException) -> str:
    """The first line of its message that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
