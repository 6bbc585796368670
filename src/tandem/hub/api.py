"""Lazy import of `huggingface_hub`, and translation of its errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tandem.errors import HubError, SettingError, needs
from tandem.version import __version__


def library() -> Any:
    """Return the `huggingface_hub` module. Raises EngineError if it is not installed."""
    with needs("huggingface_hub", "to share runs", "pip install 'tandem-rl[hub]'."):
        import huggingface_hub
        import huggingface_hub.errors  # noqa: F401
        import huggingface_hub.utils  # noqa: F401
    return huggingface_hub


def client() -> Any:
    """Return a client of the Hub, at HF_ENDPOINT if that is set."""
    return library().HfApi(
        endpoint=os.environ.get("HF_ENDPOINT") or None,
        library_name="tandem-rl",
        library_version=__version__,
    )


def expect_token() -> None:
    """Raise HubError if no user is logged in."""
    if library().get_token() is None:
        raise HubError(
            "no Hugging Face token was found.",
            "a token with write access from huggingface.co/settings/tokens",
            "run hf auth login, or set HF_TOKEN.",
        )


@contextmanager
def told(repo: str, revision: str | None = None) -> Iterator[None]:
    """Convert errors of `huggingface_hub` raised in the block: SettingError for an invalid
    repository name, HubError for everything else."""
    errors = library().errors
    try:
        yield
    except errors.HFValidationError as error:
        raise SettingError(
            f"repo={repo!r}: {_first(error)}",
            "a repository name",
            "use a name such as 'user/ppo-CartPole-v1'.",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise HubError(
            f"{repo} has no revision {revision!r}.",
            "a branch, tag or commit",
            "leave it out for the newest.",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise HubError(
            f"there is no repository {repo} that you can read.",
            "a public repository, or a private one of yours",
            "check the name; for a private one log in (hf auth login) or set HF_TOKEN.",
        ) from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", 0)
        if status in (401, 403):
            raise HubError(
                f"the hub refused the request: {_first(error)}",
                f"a token with permission for {repo}",
                "log in with another account (hf auth login), or set HF_TOKEN.",
            ) from error
        raise HubError(
            f"the hub returned {status or 'an error'}: {_first(error)}",
            "a valid request",
            "try again later, or follow the hub's message.",
        ) from error
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        raise _unreachable(error) from error
    except errors.HfHubHTTPError.__bases__[0] as error:  # base class from its HTTP library
        raise _unreachable(error) from error


def _unreachable(error: BaseException) -> HubError:
    where = os.environ.get("HF_ENDPOINT") or "huggingface.co"
    return HubError(
        f"{where} cannot be reached: {type(error).__name__}: {_first(error)}",
        "a network connection to it",
        "check the network, the proxy, and HF_HUB_OFFLINE and HF_ENDPOINT if they are set.",
    )


def _first(error: BaseException) -> str:
    """Return the first non-empty line of the error message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
