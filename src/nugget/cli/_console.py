"""Shared parts of the commands: errors, help texts, option values, tables, progress, signals."""

from __future__ import annotations

import codecs
import inspect
import io
import json
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer import Option
from typer.core import TyperCommand, TyperOption

from nugget.display import Progress
from nugget.errors import NuggetError
from nugget.storage.files import refuse_read_only

if TYPE_CHECKING:
    from rich.table import Table

    from nugget.engines.engine_settings import EngineConfig
    from nugget.report.verdict import Verdict
    from nugget.settings import Section

ConfigType = TypeVar("ConfigType", bound="Section")

# --------------------------------------------------------------------------- ASCII fallback

_PLAIN = {
    "σ": "std", "κ": "kappa", "α": "alpha", "ρ": "rho", "θ": "theta", "μ": "u", "Δ": "D", "Å": "A",
    "₀": "0", "²": "2", "³": "3", "⁻": "-", "√": "sqrt", "·": "*", "×": "x", "±": "+-",
    "–": "-", "—": "-", "−": "-", "…": "...", "→": "->", "≤": "<=", "≥": ">=", "•": "*",
    "“": '"', "”": '"', "‘": "'", "’": "'", "é": "e", "ø": "o", "ö": "o", "ü": "u", "ä": "a",
}  # fmt: skip


def _ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_PLAIN.get(letter, "?") for letter in lost), error.end


codecs.register_error("nugget-plain", _ascii)


def plain_where_needed(*streams: Any) -> None:
    """ASCII fallback for streams that are not UTF-8."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="nugget-plain")


# --------------------------------------------------------------------------- errors and warnings

BAD_INPUT = 2


@contextmanager
def handled() -> Iterator[None]:
    """Turn errors that a user can correct into one line on stderr and exit code 2."""
    with warnings.catch_warnings():
        warnings.showwarning = _show
        try:
            yield
        except NuggetError as error:
            _stop(str(error))
        except MemoryError:
            _stop("There is not enough memory; use fewer inducing points (--points) or structures.")
        except BrokenPipeError:
            raise  # the reader closed the pipe (`| head`); typer exits quietly
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            _stop(f"{name}{error.strerror or error}.")


def _stop(message: str) -> None:
    _line("Error: ", " ".join(message.split()), typer.colors.RED)
    raise typer.Exit(BAD_INPUT)


def _line(kind: str, message: str, colour: str) -> None:
    # Rich would wrap the line and read [brackets] as markup.
    typer.secho(kind + printable(message), fg=colour, err=True)


def _show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, DeprecationWarning | PendingDeprecationWarning | FutureWarning):
        return
    sys.stdout.flush()
    _line("Warning: ", " ".join(str(message).split()), typer.colors.YELLOW)


# --------------------------------------------------------------------------- help texts

#: Placeholder of a value in the help of an option; empty for flags.
_WORDS: dict[Any, str] = {bool: "", int: "N", float: "X", str: "TEXT", Path: "FILE"}


def flowing(doc: str | None) -> str:
    """A docstring with one line per paragraph, which the terminal wraps.

    Indented lines (examples) are kept. Square brackets are text, except for [bold].
    """
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(doc or ""))
    joined = [
        block if block.startswith(" ") else " ".join(line.strip() for line in block.splitlines())
        for block in blocks
    ]
    return re.sub(r"\[(?!/?bold\])", r"\\[", "\n\n".join(joined))


class PlainCommand(TyperCommand):
    """A command whose help shows short placeholders instead of Python types.

    Choices are listed in the help text instead of the narrow column of placeholders.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        hints = get_type_hints(self.callback) if self.callback else {}
        for option in self.params:
            if isinstance(option, TyperOption) and option.metavar is None:
                _describe(option, _kind(hints.get(str(option.name), str)))

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None:
            option.metavar = ""
        return option


def _describe(option: TyperOption, kind: Any) -> None:
    choices = [str(choice) for choice in get_args(kind)]
    option.metavar = "NAME" if choices else _WORDS[kind]
    if not all(choice in (option.help or "") for choice in choices):
        option.help = f"{option.help} One of {', '.join(choices)}."


def _kind(hint: Any) -> Any:
    """The type of one value of an optional or repeatable option."""
    if get_origin(hint) in (None, Literal):
        return hint
    [kind] = [kind for kind in get_args(hint) if kind is not type(None)]
    return _kind(kind)


# --------------------------------------------------------------------------- files to write

Force = Annotated[bool, Option("--force", help="Replace an existing file.")]


def refuse_existing(path: Path, force: bool, inputs: Iterable[Path] = ()) -> None:
    """Refuse a path that cannot be written, that exists (without `force`), or that is an input."""
    parent = path.absolute().parent
    if path.is_dir() or not parent.is_dir():
        raise NuggetError(f"{path} cannot be written: no such directory, or a directory.")
    if any(path.exists() and one.exists() and path.samefile(one) for one in inputs):
        raise NuggetError(f"{path} is an input of this command; choose another name with -o.")
    if path.exists() and not force:
        raise NuggetError(
            f"{path} exists already; choose another name, or add --force to replace it."
        )
    refuse_read_only(path)
    if not os.access(parent, os.W_OK):
        raise NuggetError(f"{path} cannot be written: its directory is read-only.")


def figure_files(folder: Path | None, names: Iterable[str], force: bool) -> list[Path]:
    """PNG and PDF files of these figures; none without a folder."""
    if folder is None:
        return []
    files = [folder / f"{name}.{kind}" for name in names for kind in ("png", "pdf")]
    for file in files if folder.exists() else ():
        refuse_existing(file, force)
    return files


# --------------------------------------------------------------------------- values of options


def typed(text: str) -> Any:
    """A value as in TOML (2, true, [1, 2], {Au = "x"}) or Python ((1, 2), None), else the text."""
    import tomllib
    from ast import literal_eval

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        pass
    try:
        return literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()


def engine_options(texts: list[str]) -> dict[str, Any]:
    """The --option NAME=VALUE of an engine."""
    options: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.isidentifier():
            raise NuggetError(f"--option {text}: write name=value, as xc=PBE or kpts=[2,2,2].")
        options[name] = typed(value)
    return options


def setting(text: str) -> tuple[str, Any]:
    """The --set KEY=VALUE of a search."""
    import tomllib

    from nugget.search.search_settings import current_name, sections_of

    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or "." not in key:
        homes = sections_of(key) if equals else []
        sections = [current_name(f"{name}.{key}") for name in homes]
        hint = (
            f"did you mean {' or '.join(sections)}?"
            if sections
            else "for example search.walkers=0."
        )
        raise NuggetError(f"--set {text}: write section.option=value; {hint}")
    try:
        return current_name(key), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return current_name(key), value


def validated(
    kind: type[ConfigType], tree: dict[str, Any], on_command_line: Callable[[str], str]
) -> ConfigType:
    """The settings, or an error that names the first wrong one as it is on the command line."""
    from pydantic import ValidationError

    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where = on_command_line(".".join(str(part) for part in first["loc"]))
        raise NuggetError(f"{where}: {first['msg']} (got {first['input']!r}).") from None


def engine_config(name: str, settings: Sequence[str]) -> EngineConfig:
    """The engine with settings such as engine.charge=1 or engine.options.rc=6."""
    from nugget.engines.engine_settings import EngineConfig
    from nugget.engines.task import Task

    tree: dict[str, Any] = {"name": name, "options": {}}
    for text in settings:
        key, value = setting(text)
        section, *path = key.split(".")
        if section != "engine" or (len(path) > 1 and path[0] != "options"):
            raise NuggetError(f"--set {text}: give engine settings only, as engine.charge=1.")
        (tree["options"] if len(path) > 1 else tree)[path[-1]] = value
    config = validated(EngineConfig, tree, "--set engine.{}".format)
    if config.relax_steps:
        raise NuggetError("engine.relax_steps is for searches only.")
    Task.of(config).check()
    return config


# --------------------------------------------------------------------------- output


def emit(data: dict[str, Any]) -> None:
    """Print one JSON object; numbers that are not finite become null."""
    from nugget.report.page.document import plain

    typer.echo(json.dumps(plain(data), indent=2))


def printable(value: object) -> str:
    """Text for a terminal; control characters, which a file may contain, are shown as escapes."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in str(value)
    )


_WORD = 14  # letters of a word that a narrow table does not break; the first column may


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    left: bool = False,
    **more: Any,
) -> None:
    """Print a table; all columns except the first are aligned right, or none with `left`."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=Text(printable(title)), title_justify="left", title_style="bold", **more)
    for k, column in enumerate(columns):
        words = [word for row in rows for word in str(row[k]).split()] + column.split()
        longest = max(map(len, words), default=0) if k else 0
        grid.add_column(
            column, justify="left" if left or k == 0 else "right", overflow="fold",
            min_width=min(longest, _WORD) or None,
        )  # fmt: skip
    _print(grid, rows)


def facts(title: str, rows: Sequence[tuple[str, object]]) -> None:
    """Print names and values, one per line."""
    from rich.table import Table
    from rich.text import Text

    title_text = Text(printable(title))
    grid = Table(title=title_text, title_justify="left", title_style="bold", show_header=False)
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    _print(grid, rows)


def _print(grid: Table, rows: Sequence[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.text import Text

    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row))
    Console().print(grid)


_COLOURS = {"good": "green", "warning": "yellow", "bad": "red"}
_MARKS = {"good": "ok", "warning": "!", "bad": "x"}


def show_verdict(verdict: Verdict) -> None:
    """Print the sentences of a verdict, and the badges that are not good."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    console.print(Text(printable(verdict.text), style="bold"))
    for badge in verdict.badges:
        if badge.level != "good":
            line = Text(f"{_MARKS[badge.level]} {badge.label} ", style=_COLOURS[badge.level])
            line.append(printable(badge.value), style="bold")
            line.append(printable(f" ({badge.limits})"), style="dim")
            console.print(line)


class _Step:
    """The value of a `progress=` argument: called with numbers, and informed of phases."""

    def __init__(self, label: str, bar: Any) -> None:
        self._label, self._bar = label, bar
        self._task = bar.add_task(label, total=None, count="")

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total, count=f"{done}/{total}")

    def phase(self, name: str) -> None:
        """Start a phase of unknown length."""
        description = f"{self._label}: {name}"
        self._bar.reset(self._task, total=None, description=description, count="")


@contextmanager
def progress(label: str, shown: bool = True) -> Iterator[Progress | None]:
    """A bar on stderr, for terminals only; yields the value of a `progress=` argument."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    texts = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"))
    columns = (*texts, TimeElapsedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Step(label, bar)


def number(value: float | None, digits: int = 4, form: str = "g") -> str:
    """A number for a table, or a dash."""
    return "–" if value is None or value != value else f"{value:.{digits}{form}}"


def given(**options: Any) -> dict[str, Any]:
    """The options that have a value."""
    return {name: value for name, value in options.items() if value is not None}


def echo_written(files: Iterable[Path]) -> None:
    """Print the names of the files that the command has written."""
    for file in files:
        typer.echo(f"Written: {file}")


# --------------------------------------------------------------------------- signals

_STOPPING_ONE = "Stopping after this evaluation. Ctrl-C again breaks it off."
_STOPPING_SEVERAL = "Stopping after the evaluations in flight. Ctrl-C again breaks them off."


@contextmanager
def graceful_stop(
    stop: Callable[[], None], note: Callable[[str], None] | None, several: bool = False
) -> Iterator[None]:
    """Stop after the evaluations in flight on Ctrl-C or SIGTERM, and at once on the second."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    requested = False

    def handle(number: int, frame: object) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True
        stop()
        if note is not None:
            note(_STOPPING_SEVERAL if several else _STOPPING_ONE)

    former = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
