"""`trunkline new`: a project that runs, with an agent, its test and a container."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.next_command import command_line, print_next
from trunkline.cli.parsing import Commands
from trunkline.errors import Misuse

commands = Commands()
_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")
_TEMPLATE = Path(__file__).with_name("project_template")
# As they are listed once they are written; each has the ending .txt here, so that none is taken for our own.
_FILES = (
    "agent.py", "tests/test_agent.py", "pyproject.toml", "Dockerfile", ".dockerignore", ".gitignore",
    "README.md",
)  # fmt: skip


@commands.local("new")
def begin(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the project and of its folder.")],
) -> None:
    """Create a project: an agent, its test and a container."""
    if not _NAME.fullmatch(name):
        raise Misuse(
            f"{name!r} is not a valid project name: use 1 to 64 letters, digits, - and _, "
            "with a letter first and a letter or digit last",
            hint="trunkline new NAME",
        )
    image = name.lower().replace("_", "-")
    if image == "trunkline":
        text = "a project named trunkline would hide the package of that name; choose another"
        raise Misuse(text, hint="trunkline new NAME")
    project = Path(name)
    try:
        project.mkdir()
        for path in _FILES:
            text = (_TEMPLATE / f"{path}.txt").read_text("utf-8")
            file = project / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(text.replace("{name}", name).replace("{image}", image), encoding="utf-8")
            print(file)
    except FileExistsError:
        text = f"{project} already exists; choose another name, or remove it"
        raise Misuse(text, hint="trunkline new NAME") from None
    except OSError as error:
        raise Misuse(f"{project}: {error.strerror}") from None
    print()
    print_next(f"cd {name} && {command_line('serve', 'agent:agent')}")
