"""Pages of the documentation as programs: their blocks, in order, in one empty directory.

- `bash` blocks are run by bash, `python` blocks by Python. Either must end with exit code 0.
- A `python`, `toml` or `bash` block whose first line is a comment with nothing but a file name
  (after `#!/bin/bash`) is written to that file instead.
- A `toml` block without a name must be valid settings, or parts of them.
- `text` blocks are shown and not run: what a program prints, diagrams, pieces of input files. With
  a comment `<!-- output: within … -->` above it, a block is compared with what the block that was
  run last has printed (doc_output.py). `<!-- sample: REASON -->` marks output that is not compared.
- The comment `<!-- not run: REASON -->` above a block says why the block is not run. Readers of the
  site see none of these comments.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from dataclasses import dataclass
from pathlib import Path

from doc_output import Comparison

from nugget.search.search_settings import make_config

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```(\S*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: (.+?)\.? -->\s*$", re.DOTALL)
SAMPLE = re.compile(r"<!-- sample: (.+?)\.? -->\s*$", re.DOTALL)
FILE = re.compile(r"^(?:#!\S+\n)?# ([\w~./-]+\.(?:py|toml|sh))$", re.MULTILINE)
#: Pages about scripts and settings of the source, which are run beside a copy of these.
IN_THE_CLONE = ("examples", "paper")
KINDS = ("bash", "python", "toml", "text")


@dataclass(frozen=True)
class Block:
    """One fenced block; `reason` says why it is not run or compared, if it is not."""

    kind: str
    code: str
    line: int
    reason: str = ""
    comparison: Comparison | None = None

    @property
    def file(self) -> str | None:
        """The file that the block is the content of."""
        found = FILE.match(self.code)
        return found[1] if found and self.kind != "text" else None


def pages() -> list[Path]:
    """Every page that users read."""
    places = (ROOT / "docs").rglob("*.md")
    shown = [path for path in places if "_build" not in path.parts]
    more = [ROOT / "README.md", *(ROOT / part / "README.md" for part in IN_THE_CLONE)]
    return sorted([*shown, *more])


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        indent, kind, code = match.groups()
        if kind.startswith("{"):
            continue  # a directive of the site, such as a list of pages
        if indent:
            code = "".join(line.removeprefix(indent) for line in code.splitlines(keepends=True))
        before = text[: match.start()]
        paragraph = before.rstrip().rsplit("\n\n", 1)[-1]
        mark = (SAMPLE if kind == "text" else NOT_RUN).search(paragraph)
        reason = " ".join(mark[1].split()) if mark else ""
        comparison = Comparison.from_mark(paragraph) if kind == "text" else None
        found.append(Block(kind, code, before.count("\n") + 1, reason, comparison))
    return found


def run(page: Path, directory: Path) -> int:
    """Run a page in a directory; AssertionError tells which block failed. Counts what was run.

    `printed.txt` in the home directory beside it collects what the blocks print.
    """
    home = directory.with_name(f"{directory.name}-home")
    home.mkdir()
    if page.parent.name in IN_THE_CLONE:
        for part in (*IN_THE_CLONE, "benchmarks"):
            shutil.copytree(ROOT / part, directory / part)
    done, printed = 0, ""
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.comparison is not None:
            missing = block.comparison.missing_line(block.code, printed)
            assert missing is None, f"{where}: not printed: {missing}\n\n{printed}"
        if block.reason or block.kind == "text":
            continue
        done += 1
        if block.file is not None:
            _write(block, block.file, directory)
        elif block.kind == "toml":
            make_config(tomllib.loads(block.code), where)
        else:
            code, printed = _execute(block, directory, home)
            with (home / "printed.txt").open("a", encoding="utf-8") as log:
                log.write(f"\n# {where}\n{block.code}\n{printed}\n")
            assert code == 0, f"{where}\n{block.code}\n{printed}"
    return done


def _write(block: Block, name: str, directory: Path) -> None:
    """Write a block to the file that its first line names; files of the user's home are not."""
    if not name.startswith("~"):
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.code, encoding="utf-8")
    if block.kind == "toml":
        tomllib.loads(block.code)


def _execute(block: Block, directory: Path, home: Path) -> tuple[int, str]:
    """The exit code of a program and what it printed."""
    environment = {
        **os.environ,
        "HOME": str(home),
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
        "MPLBACKEND": "Agg",
        "COLUMNS": "100",
    }
    shell = ["bash", "-eu", "-o", "pipefail", "-c"]
    command = shell if block.kind == "bash" else [sys.executable, "-c"]
    ended = subprocess.run(
        [*command, block.code], cwd=directory, env=environment, capture_output=True, text=True
    )
    return ended.returncode, f"{ended.stdout}\n{ended.stderr}"


if __name__ == "__main__":  # python tests/docs/doc_pages.py docs/tutorials/alloy.md DIRECTORY
    made = Path(sys.argv[2])
    made.mkdir(parents=True)
    print(f"{run(Path(sys.argv[1]).resolve(), made.resolve())} blocks of {sys.argv[1]} were run")
