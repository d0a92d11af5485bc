"""Where settings come from, and how one that can't be used is told: one sentence, with the nearest name there is."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from dotenv import dotenv_values
from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from core.errors import BadInput

Values = dict[str, Any]
ANY = "*"
"""Stands for a name that is the operator's to choose, and for a place in a list."""
OF_A_NAME = "[key]"
"""How pydantic says that not the value is wrong but its name."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What the file holds, to say where a value came from."""

    file: Path
    written: Mapping[str, Any]
    plain_names: Mapping[str, tuple[str, str]]

    def of(self, path: tuple[str | int, ...]) -> str:
        """The file, or the environment."""
        value: Any = self.written
        for step in path:
            inside = isinstance(value, Mapping) and step in value
            if not inside and not (isinstance(value, list) and isinstance(step, int)):
                return "The environment"
            value = value[step]
        return str(self.file)


def table(path: Path, *, required: bool) -> Values:
    """The file as nested tables; empty when it is not there and need not be. Raises `BadInput`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise BadInput(f"There is no configuration file {path}.") from None
        return {}
    except OSError as error:
        raise BadInput(f"{path} can't be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not valid TOML: {str(error).rstrip('.')}.") from None


def environment(environ: Mapping[str, str], env_file: Path) -> dict[str, str]:
    """The variables of `.env` and, above them, those of the environment; empty ones count as not given."""
    from_file = dotenv_values(env_file) if env_file.is_file() else {}
    return {name: value for name, value in {**from_file, **environ}.items() if value}


def from_environment(
    settings: type[BaseSettings],
    variables: Mapping[str, str],
    plain_names: Mapping[str, tuple[str, str]],
) -> Values:
    """What the environment says: the usual names, and above them `PILOTHOUSE_PART__NAME`. Raises `BadInput`."""
    values: Values = {}
    for name, (part, field) in plain_names.items():
        if name in variables:
            values.setdefault(part, {})[field] = variables[name]
    rest = {name: value for name, value in variables.items() if name not in plain_names}
    try:
        return merged(values, _Variables(settings, rest)())
    except SettingsError:
        lists = [name for name in rest if name.startswith("PILOTHOUSE_") and "__" in name]
        raise BadInput(
            f'The environment: a list must be written as JSON, like \'["U1", "U2"]\'; look at {", ".join(lists)}.'
        ) from None


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Values:
    """`below` with everything that `above` says."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both and isinstance(old, Mapping) else value
    return result


def sentence(error: ValidationError, settings: type[BaseModel], origin: Origin) -> str:
    """The first thing that is wrong."""
    wrong = error.errors(include_input=False, include_url=False, include_context=False)[0]
    path = tuple(step for step in wrong["loc"] if step != OF_A_NAME)
    name = ".".join(str(step) for step in path)
    if wrong["type"] == "extra_forbidden":
        near = _nearest(path, known_paths(settings))
        return f"{origin.of(path)}: there is no setting {name}{f'; did you mean {near}?' if near else '.'}"
    message = wrong["msg"].removeprefix("Value error, ").replace("Input", "it", 1).rstrip(".")
    return f"{origin.of(path)}: {name} can't be used: {message}."


def known_paths(model: type[BaseModel]) -> set[tuple[str, ...]]:
    """The path of every setting; `ANY` stands for what operators name themselves."""
    return set(_paths(model))


class _Variables(EnvSettingsSource):
    """The environment as it was handed in."""

    def __init__(self, settings: type[BaseSettings], variables: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in variables.items()}
        super().__init__(settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._given


def _paths(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        inner = _models(field.annotation)
        if field.default_factory is not None and not inner:
            inner = []
        if not inner:
            yield (name,)
        for steps, part in inner:
            yield from ((name, *steps, *rest) for rest in _paths(part))


def _models(annotation: Any) -> list[tuple[tuple[str, ...], type[BaseModel]]]:
    """The tables in a field's type, with the steps that lead to each."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [((), annotation)]
    return [((ANY,), arg) for arg in get_args(annotation) if isinstance(arg, type) and issubclass(arg, BaseModel)]


def _nearest(path: tuple[str | int, ...], known: Iterable[tuple[str, ...]]) -> str | None:
    """The setting that was probably meant: the same name elsewhere, or a similar one."""
    steps = [str(step) for step in path]
    wrong = ".".join(steps)
    names: dict[str, None] = {}
    for one in sorted(known, key=lambda path: (len(path), path)):
        named = _in_the_same_place(one, steps)
        names.update(dict.fromkeys(".".join(named[:length]) for length in range(1, len(named) + 1)))
    same_name = [name for name in names if name.rpartition(".")[2] == steps[-1]]
    same_table = [name for name in names if name.rpartition(".")[0] == wrong.rpartition(".")[0]]
    similar = get_close_matches(wrong, same_table, 1, 0.75) or get_close_matches(wrong, names, 1, 0.75)
    return next(iter([*same_name, *similar]), None)


def _in_the_same_place(known: tuple[str, ...], steps: list[str]) -> list[str]:
    """A known path, with the operator's own names in it where both lead the same way; cut where they don't."""
    named: list[str] = []
    for place, step in enumerate(known):
        if step != ANY:
            named.append(step)
        elif named == steps[:place] and len(steps) > place + 1:
            named.append(steps[place])
        else:
            break
    return named
