"""The script of a model, which stands in for a provider without key or network: requests and their answers.

`mock.openai_api` serves it over HTTP, and `gateway.model.scripted` answers by it in process.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from msgspec import Struct

from trunkline.errors import Misuse
from trunkline.mock.scenario import Strict
from trunkline.wire.decode import choices
from trunkline.wire.types import Metadata
from trunkline.yaml_reader import read_text, read_yaml

# Tokens are estimated, because a script has no tokenizer.
CHARACTERS_PER_TOKEN = 4
_UNKNOWN = re.compile("unknown field `(.*?)`")


class ScriptedCall(Strict, frozen=True):
    """A tool that the model calls."""

    tool: str
    arguments: Metadata = {}


class ModelReply(Strict, frozen=True):
    """The answer of the model: a text, in chunks if it is streamed, calls of tools, or a failure."""

    text: str = ""
    stream: tuple[str, ...] = ()
    calls: tuple[ScriptedCall, ...] = ()
    # Seconds before the answer.
    delay: float = 0
    # HTTP status of a failure of the provider, such as 429.
    error: int = 0

    @property
    def chunks(self) -> tuple[str, ...]:
        """The chunks of the text."""
        return self.stream or ((self.text,) if self.text else ())


class ModelCondition(Strict, frozen=True):
    """Which request a rule is for: all that is set must hold."""

    text: str | None = None
    # In any case of letters.
    contains: str = ""
    regex: str = ""
    # The request holds the result of this tool.
    tool: str = ""
    # The n-th message of the user.
    turn: int | None = None


class ModelRule(Strict, frozen=True):
    """A condition and the answer to the requests that meet it."""

    reply: ModelReply | str
    when: ModelCondition = ModelCondition()


class ModelScript(Strict, frozen=True):
    """The answers of a model. The first rule that fits answers, else `otherwise`."""

    rules: tuple[ModelRule, ...] = ()
    otherwise: ModelReply | str = "The script has no answer to this."


class ModelTurn(Struct, frozen=True):
    """A request as the rules see it: its newest message, the tool that returned it, the turn."""

    text: str
    tool: str
    turn: int


def reply_to(script: ModelScript, request: ModelTurn) -> ModelReply:
    """Return the answer of a script to a request.

    A rule without `tool` does not answer the result of a tool, which often repeats the words of the user.
    """
    found = next((rule.reply for rule in script.rules if _fits(rule.when, request)), script.otherwise)
    return ModelReply(text=found) if isinstance(found, str) else found


def _fits(when: ModelCondition, request: ModelTurn) -> bool:
    return (
        when.tool == request.tool
        and (when.text is None or when.text == request.text)
        and when.contains.casefold() in request.text.casefold()
        and (not when.regex or re.search(when.regex, request.text) is not None)
        and when.turn in (None, request.turn)
    )


def count_tokens(text: str) -> int:
    """Return the estimated number of tokens of a text."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def load_model_script(file: Path) -> ModelScript:
    """Read the script of a model.

    Raises:
        Misuse: the file is missing or invalid; the message names the line.
    """
    try:
        found = read_yaml(read_text(file), str(file))
    except FileNotFoundError:
        raise Misuse(f"{file}: there is no such file") from None
    if found is None:
        raise Misuse(f"{file}: the script is empty; give `rules` or `otherwise`")
    document, position = found
    try:
        script = msgspec.convert(document, ModelScript)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at ")
        at = path.strip("`").removeprefix("$").lstrip(".")
        if unknown := _UNKNOWN.search(text):
            where = f"{at}.{unknown[1]}".lstrip(".")
            text = f"{where}: unknown field{choices(ModelScript, at, unknown[1])}"
            at = where
        raise Misuse(f"{position(at)}: {text}") from None
    for number, rule in enumerate(script.rules):
        try:
            re.compile(rule.when.regex)
        except re.error as error:
            place = position(f"rules.{number}.when.regex")
            raise Misuse(f"{place}: regex {rule.when.regex!r} is invalid: {error}") from None
    return script
