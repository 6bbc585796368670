"""Functional environments by id, and as Gymnasium environments. JAX is imported on first use."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import ModuleType
from typing import Any

from tandem.envs.calls import has_methods
from tandem.envs.functions import KINDS, WORLDS
from tandem.envs.ids import import_gymnasium
from tandem.envs.jax import host
from tandem.envs.jax.protocol import FunctionalEnv
from tandem.errors import EngineError, SettingError, TandemError, UnknownNameError
from tandem.types import EnvKwargs, JSONDict

# family of ids -> pip package that its environments need
PACKAGES = {
    "brax": "brax",
    "gymnax": "gymnax",
    "pgx": "pgx",
    "phys2d": "flax",
    "playground": "playground",
    "tabular": "flax",
    "tandem": "jax",
}
EXTRA = ("flax", "jax", "pgx")  # packages of the extra `functional`
OURS = "max_episode_steps"  # an argument that every id accepts


def view(env: Any, kwargs: EnvKwargs | None = None, name: str = "") -> Any:
    """Return a `FunctionalView` of an id's environment, with its arguments, or of an object.

    kwargs: arguments of the id's environment, `max_episode_steps` to override its limit, and
        `render_mode`.

    Raises UnknownNameError for an unknown id, EngineError if a package is not installed,
    SettingError for arguments that do not fit, and the errors of `checks.check`."""
    given = dict(kwargs or {})
    mode = given.pop("render_mode", None)
    name = name or env
    host.prepare()
    try:
        made = by_id(env, **given) if isinstance(env, str) else adapted(env)
    except ImportError as error:
        raise _missing(name, error) from error
    from tandem.envs.jax.view import FunctionalView  # imports JAX

    if not isinstance(env, str) and has_methods(made, "render"):
        mode = "rgb_array"  # objects take no render_mode; images are only made on request
    if mode != "human":
        return FunctionalView(name, made, mode)
    return import_gymnasium().wrappers.HumanRendering(FunctionalView(name, made, "rgb_array"))


def by_id(name: str, /, **kwargs: object) -> FunctionalEnv:
    """Return the environment of an id: FAMILY/NAME, or one of `WORLDS`. Equal arguments return the
    same object, since it is immutable and compiled code belongs to it."""
    try:
        text = json.dumps(kwargs, sort_keys=True)
    except TypeError:
        return _create(name, kwargs)
    return _by_id(name, text) if json.loads(text) == kwargs else _create(name, kwargs)


@lru_cache(maxsize=8)
def _by_id(name: str, kwargs: str) -> FunctionalEnv:
    return _create(name, json.loads(kwargs))


def _create(name: str, kwargs: JSONDict) -> FunctionalEnv:
    family, _, inner = name.partition("/")
    limit = kwargs.pop(OURS, None)
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise SettingError(
            f"{OURS}={limit!r} for {name}.",
            "a whole number of steps, 0 for no limit",
            f"give {OURS}=500.",
        )
    with host.processor():
        try:
            env = BY_FAMILY[family](name, inner, kwargs)
        except (TandemError, ImportError):
            raise
        except Exception as error:  # libraries raise any type for invalid arguments
            raise SettingError(
                f"the environment {name} cannot be created: {type(error).__name__}: {error}",
                f"arguments that it accepts, or {OURS}",
                "correct the arguments (env_kwargs=, --env-kwargs).",
            ) from error
    if limit is not None:
        env.max_episode_steps = limit
    return env


def adapted(env: Any) -> FunctionalEnv:
    """Wrap an object in the adapter for its type; one with the protocol stays unchanged."""
    kind = next(name for name, fits in KINDS.items() if fits(env))
    return _adapted(env, getattr(_adapters(), kind)) if kind else env


def _adapters() -> ModuleType:
    """Import the adapters, which import JAX."""
    from tandem.envs.jax import adapters  # imports JAX

    return adapters


_adapters_by_id: dict[int, tuple[object, FunctionalEnv]] = {}  # the most recent adapters


def _adapted(env: object, adapter: Callable[[object], FunctionalEnv]) -> FunctionalEnv:
    if id(env) not in _adapters_by_id:
        if len(_adapters_by_id) >= 8:
            _adapters_by_id.pop(next(iter(_adapters_by_id)))
        with host.processor():
            _adapters_by_id[id(env)] = env, adapter(env)
    return _adapters_by_id[id(env)][1]


def _tandem(name: str, inner: str, kwargs: JSONDict) -> FunctionalEnv:
    from tandem.envs.jax import worlds  # imports JAX

    return getattr(worlds, WORLDS[name])(**kwargs)


def _gymnasium(name: str, inner: str, kwargs: JSONDict) -> FunctionalEnv:
    spec = import_gymnasium().registry.get(name)
    family = name.partition("/")[0]
    if spec is None:
        known = [other for other in import_gymnasium().registry if other.startswith(f"{family}/")]
        raise UnknownNameError("functional environment", name, known)
    one = import_gymnasium().make(name, disable_env_checker=True, **kwargs).unwrapped
    return _adapters().Gymnasium(one.func_env, spec.max_episode_steps or 0)


def _gymnax(name: str, inner: str, kwargs: JSONDict) -> FunctionalEnv:
    import gymnax

    _known(name, inner, gymnax.registered_envs)
    fields = getattr(gymnax.make(inner)[1], "__dataclass_fields__", {})
    own = {key: x for key, x in kwargs.items() if key not in fields}
    made, params = gymnax.make(inner, **own)
    changed = {key: x for key, x in kwargs.items() if key in fields}
    return _adapters().Gymnax(made, params.replace(**changed) if changed else params)


def _brax(name: str, inner: str, kwargs: JSONDict) -> FunctionalEnv:
    envs: Any = importlib.import_module("brax.envs")
    _known(name, inner, envs._envs)
    return _adapters().Brax(envs.get_environment(inner, **kwargs))


def _playground(name: str, inner: str, kwargs: JSONDict) -> FunctionalEnv:
    registry: Any = importlib.import_module("mujoco_playground").registry
    _known(name, inner, registry.ALL_ENVS)
    config = registry.get_default_config(inner)
    # the alternative, Warp, needs a GPU, but environments are stepped on the CPU
    changed = ({"impl": "jax"} if hasattr(config, "impl") else {}) | kwargs
    made = registry.load(inner, config_overrides=changed)
    return _adapters().Brax(made, int(changed.get("episode_length", config.episode_length)))


def _pgx(name: str, inner: str, kwargs: JSONDict) -> FunctionalEnv:
    import pgx

    _known(name, inner, pgx.available_envs())
    return _adapters().Pgx(pgx.make(inner, **kwargs))


BY_FAMILY: dict[str, Callable[[str, str, JSONDict], FunctionalEnv]] = {
    "brax": _brax,
    "gymnax": _gymnax,
    "pgx": _pgx,
    "phys2d": _gymnasium,
    "playground": _playground,
    "tabular": _gymnasium,
    "tandem": _tandem,
}


def _known(name: str, inner: str, names: Iterable[str]) -> None:
    family = name.partition("/")[0]
    if inner not in (known := list(names)):
        raise UnknownNameError(
            "functional environment", name, [f"{family}/{other}" for other in known]
        )


def _missing(name: str, error: ImportError) -> EngineError:
    package = PACKAGES.get(name.partition("/")[0], "jax")
    if error.name == "jax":
        package = "jax"
    return EngineError(
        f"the environment {name} needs a package that is not installed: {error}",
        "JAX, and the package that provides the environment",
        'pip install "tandem-rl[functional]"'
        if package in EXTRA
        else f'pip install "tandem-rl[functional]" {package}',
    )
