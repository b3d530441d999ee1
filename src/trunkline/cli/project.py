"""`trunkline new`: a project that runs, with an agent, its test and a container."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.parsing import Commands
from trunkline.errors import Misuse

commands = Commands()
_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")
_FILES = {
    "agent.py": '''"""The agent: a name and some functions."""

from trunkline import Agent, Turn

agent = Agent("{name}", description="Counts the words you send it", version="0.1.0")


@agent.skill(examples=["count these four words"])
async def count(turn: Turn, text: str) -> str:
    """Count the words of a text."""
    if not text.strip():
        text = await turn.ask("Which text do you mean?")
    await turn.status("counting")
    return f"{{len(text.split())}} words"
''',
    "tests/test_agent.py": '''"""The agent answers in this process, without a port."""

from agent import agent


def test_it_counts(a2a_client):
    assert a2a_client(agent).send("count these four words").text == "4 words"


def test_it_asks(a2a_client):
    chat = a2a_client(agent).chat()
    assert chat.say(" ").question == "Which text do you mean?"
    assert chat.say("one two").text == "2 words"
''',
    "pyproject.toml": """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["trunkline"]

[project.optional-dependencies]
test = ["pytest"]

[tool.setuptools]
py-modules = ["agent"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
""",
    "Dockerfile": """FROM python:3.13-slim
WORKDIR /app
COPY pyproject.toml agent.py ./
RUN pip install --no-cache-dir . && useradd --create-home agent && install -d -o agent /data
USER agent
VOLUME /data
ENV TRUNKLINE_STORE=sqlite:////data/tasks.db
EXPOSE 8000
CMD ["trunkline", "serve", "agent:agent", "--host", "0.0.0.0"]
""",
    ".dockerignore": "*\n!agent.py\n!pyproject.toml\n",
    ".gitignore": "__pycache__/\n*.egg-info/\nbuild/\n.venv/\n*.db\n*.db-*\n*.db.lock\n*.key\n",
    "README.md": """# {name}

An A2A agent. Its skills are the functions in `agent.py`.

```sh
pip install -e '.[test]'
pytest
trunkline serve agent:agent
```

In another terminal:

```sh
trunkline card http://127.0.0.1:8000
trunkline send http://127.0.0.1:8000 "count these four words"
trunkline doctor http://127.0.0.1:8000
```

In a container other machines can reach it, so it wants a key. Its tasks are kept in the volume:

```sh
docker build -t {image} .
docker run -p 8000:8000 -v {image}:/data -e TRUNKLINE_KEYS=a-long-random-key {image}
trunkline send http://127.0.0.1:8000 "count these four words" --api-key a-long-random-key
```
""",
}


@commands.local("new")
def begin(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The project's name, and its directory's.")],
) -> None:
    """Write a project that runs: an agent, its test, a container."""
    if not _NAME.fullmatch(name):
        raise Misuse(
            f"{name!r} is no name of a project: letters, digits, - and _, "
            "beginning with a letter and ending without - or _, 64 at most"
        )
    image = name.lower().replace("_", "-")
    if image == "trunkline":
        raise Misuse("a project named trunkline would hide the package of that name; choose another")
    project = Path(name)
    try:
        project.mkdir()
        for path, text in _FILES.items():
            file = project / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(text.format(name=name, image=image), encoding="utf-8")
            print(file)
    except FileExistsError:
        raise Misuse(f"{project} exists already; choose another name, or remove it") from None
    except OSError as error:
        raise Misuse(f"{project}: {error.strerror}") from None
    print(f"\nNext: cd {name}\n      trunkline serve agent:agent")
