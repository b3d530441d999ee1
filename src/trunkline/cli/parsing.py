"""Declares commands: a function, its arguments and its options, as a Typer command.

Nothing of the client is imported here: what is here is paid for by `trunkline serve` too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import typer
from msgspec import Struct
from typer.core import TyperCommand, TyperGroup

from trunkline.cli.options import OPTIONS, Option
from trunkline.errors import Misuse

if TYPE_CHECKING:
    from trunkline.cli.command import Work

    WorkT = TypeVar("WorkT", bound=Work)

_NUMBER = re.compile("[0-9]{1,9}")
PARTS = ("text", "file", "data", "media_type")
# How Typer gives an option that was not typed.
_UNSAID: tuple[object, ...] = (None, [], ())
# The arguments of a command that takes its agent and nothing else.
AGENT_ONLY = "[AGENT]"
FunctionT = TypeVar("FunctionT", bound=Callable[..., None])
# What several commands take.
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", help="URL of a store or folder of a hub. Default: the setting `store`."),
]
Tenant = Annotated[str, typer.Option(help="Tenant. Default: `default`.")]
OfTenant = Annotated[str, typer.Option("--tenant", help="Show only this tenant.")]
Count = Annotated[int, typer.Option(min=1, help="Maximum number of results.")]
ListedId = Annotated[str, typer.Argument(metavar="ID", help="ID, as `list` shows it.")]
Watch = Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")]
Several = list[str] | None
Members = Annotated[
    Several,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Member of the request, such as timeoutMs=60000; repeatable."
    ),
]


def read_members(given: Sequence[str] | None) -> dict[str, Any]:
    """Return the members that `--set` gives, by name; a value that is not JSON is a text.

    Raises:
        Misuse: one has no equals sign.
    """
    found: dict[str, Any] = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals:
            raise Misuse(f"--set takes NAME=VALUE, for example timeoutMs=60000, not {one!r}")
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return found


class Invocation(Struct, frozen=True):
    """A command line as it was typed: arguments, flags, and the flags of message parts in their order."""

    arguments: tuple[str, ...]
    flags: dict[str, Any]
    parts: tuple[tuple[str, str], ...] = ()

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Let none of these options be given.

        Raises:
            Misuse: some are.
        """
        given = [f"--{name}" for name in names if OPTIONS[name].field in self.flags]
        if given:
            raise Misuse(f"{', '.join(given)}: {why}")


class UsageCommand(TyperCommand):
    """A command whose usage errors are reported as the contract requires."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; where all of them are plain, without the conversion of Typer.

        Typer loads pydantic to convert any value, which takes a sixth of the start of a server.
        """
        values = None if ctx.resilient_parsing else self._read_plain_values(ctx, list(args))
        if values is None:
            return super().parse_args(ctx, args)
        ctx.params.update(values)
        return []

    def _read_plain_values(self, ctx: Any, args: list[str]) -> dict[str, Any] | None:
        """Return the values that were typed, or None unless all are texts, flags or plain numbers."""
        typed, rest, _ = self.make_parser(ctx).parse_args(args)
        values = {name: value for name, value in typed.items() if value is not None}
        required = {each.name for each in self.params if each.required}
        if rest or not required <= values.keys():
            return None
        assert self.callback is not None
        parameters = inspect.signature(self.callback).parameters
        try:
            return {name: _read_plain(parameters[name], value) for name, value in values.items()}
        except (KeyError, ValueError):
            return None

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the words; a usage error ends the command."""
        typed = list(args)
        try:
            # The command named `help` would otherwise take the default of --help for its map of defaults.
            return super().make_context(info_name, args, parent, default_map={}, **extra)
        except typer.TyperException as error:
            raise _reported(error, typed, _path(info_name, parent)) from None


class ClientCommand(UsageCommand):
    """A command that calls an agent, and knows the order of the parts of a message."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, and note in which order parts were given, which a parser of flags forgets."""
        if not ctx.resilient_parsing:
            ctx.meta["parts"] = self._in_order(ctx, list(args))
        return super().parse_args(ctx, args)

    def _in_order(self, ctx: Any, args: list[str]) -> tuple[tuple[str, str], ...]:
        values, _, order = self.make_parser(ctx).parse_args(args)
        left = {name: iter(values.get(name, ())) for name in PARTS}
        return tuple((each.name, next(left[each.name])) for each in order if each.name in left)


class ClientGroup(TyperGroup):
    """A group whose first command is meant when none is named: `trunkline card URL` is `card get URL`."""

    default = ""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the words, with a value for --help: to convert None, Typer would load pydantic."""
        typed = list(args)
        try:
            return super().make_context(info_name, args, parent, default_map={"help": False}, **extra)
        except typer.TyperException as error:
            raise _reported(error, typed, _path(info_name, parent)) from None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the default command in front where none is named."""
        if self.default and args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Which command is meant; that there is none is told as every mistake of usage."""
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            raise _reported(error, args, ctx.command_path) from None


class ServingGroup(ClientGroup):
    """A group whose first word, where it names no command, is what is to be served."""

    default = "serve"


class Commands(typer.Typer):
    """The commands of one module, in the order of their help."""

    def __init__(self, cls: type[ClientGroup] = ClientGroup) -> None:
        super().__init__(cls=cls, no_args_is_help=True, add_completion=False)

    def local(self, name: str) -> Callable[[FunctionT], FunctionT]:
        """Add a command that calls no agent; its parameters are Typer's.

        One that takes `as_json` has the options by which all commands are asked for JSON; one that takes an
        `operator` has them too, and --store in its place. The members of a dictionary that it takes
        (`**given: Unpack[…]`) are options, and in it when they were typed.
        """

        def add(function: FunctionT) -> FunctionT:
            self.command(name, cls=UsageCommand)(_composed(function))
            return function

        return add

    def parsed(
        self, name: str, *options: str, arguments: str, about: str = "", **implied: Any
    ) -> Callable[[Callable[[Invocation], None]], Callable[[Invocation], None]]:
        """Add a command that is given its whole line, with options by their names in the table of `options`.

        Flags that are `implied` count as typed.
        """

        def add(function: Callable[[Invocation], None]) -> Callable[[Invocation], None]:
            def command(ctx: typer.Context, words: Sequence[str] | None = None, **flags: Any) -> None:
                given = {name: value for name, value in flags.items() if value not in _UNSAID}
                if given.pop("json", False):
                    given["output"] = "json"
                function(Invocation(tuple(words or ()), {**given, **implied}, ctx.meta.get("parts", ())))

            command.__doc__ = function.__doc__
            parameters = [_optional("ctx", typer.Context), *map(_parameter, options)]
            if arguments:
                words = typer.Argument(metavar=arguments, help=about, show_default=False)
                parameters.append(_optional("words", Annotated[Several, words]))
            self.command(name, cls=ClientCommand)(_signed(command, parameters))
            return function

        return add

    def calling(
        self,
        name: str,
        *options: str,
        arguments: str = AGENT_ONLY,
        about: str = "Agent, unless -a is given.",
        use_login: bool = True,
        on_hub: str = "",
        **implied: Any,
    ) -> Callable[[WorkT], WorkT]:
        """Add a command that works with one agent; see `cli.command` for how it runs.

        `on_hub` names the command of `cli.hub_tasks` that runs where a hub is meant.
        """

        def add(work: WorkT) -> WorkT:
            def command(invocation: Invocation) -> None:
                from trunkline.cli.command import run_command

                run_command(
                    invocation, work, agent_only=arguments == AGENT_ONLY, use_login=use_login, on_hub=on_hub
                )

            command.__doc__ = work.__doc__
            self.parsed(name, *options, arguments=arguments, about=about, **implied)(command)
            return work

        return add


def _composed(function: Callable[..., None]) -> Callable[..., None]:
    """The function as Typer takes it: with options in the place of what is made of several."""
    own = inspect.signature(function, eval_str=True).parameters
    members: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, each in own.items():
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            members = get_type_hints(get_args(each.annotation)[0], include_extras=True)
        elif name == "operator":
            parameters.append(_optional("store", StoreUrl))
        elif name != "as_json":
            parameters.append(each)
    prints = {"as_json", "operator"} & own.keys()

    def command(**flags: Any) -> None:
        given = {name: flags[name] for name in flags if name not in members or flags[name] not in _UNSAID}
        if prints:
            from trunkline.cli.configuration import is_json_wanted

            output, json = given.pop("output"), given.pop("json")
            given["as_json"] = is_json_wanted("json" if json else output)
        if "operator" in prints:
            given["operator"] = own["operator"].annotation(given.pop("store"), as_json=given.pop("as_json"))
        function(**given)

    command.__doc__ = function.__doc__
    asked = ("output", "json") if prints else ()
    return _signed(
        command, [*map(_optional, members, members.values()), *parameters, *map(_parameter, asked)]
    )


def _signed(command: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    words = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    vars(command)["__signature__"] = inspect.Signature(words)
    command.__annotations__ = {each.name: each.annotation for each in words}
    return command


def _optional(name: str, kind: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _parameter(name: str) -> inspect.Parameter:
    option = OPTIONS[name]
    kind = {"flag": bool | None, "list": list[str] | None}.get(option.kind, str | None)
    spelled = [f"--{option.name}", *([option.short] if option.short else ())]
    info = typer.Option(
        *spelled,
        *(f"--{alias}" for alias in option.aliases),
        metavar=None if option.kind == "flag" else option.metavar or "|".join(option.choices),
        help=_help(option),
        show_default=False,
        autocompletion=(lambda: list(option.choices)) if option.choices else None,
    )
    return _optional(option.field, Annotated[kind, info])


def _help(option: Option) -> str:
    default = option.default or ("no" if option.kind == "flag" else "")
    notes = [f"default: {default}" if default else "", option.variable]
    noted = "; ".join(note for note in notes if note)
    return f"{option.help} ({noted})" if noted else option.help


def _read_plain(parameter: inspect.Parameter, value: Any) -> Any:
    """Return a typed value as its parameter has it.

    Raises:
        ValueError: the value needs a check that only Typer makes.
    """
    is_annotated = get_origin(parameter.annotation) is Annotated
    kind, *infos = get_args(parameter.annotation) if is_annotated else (parameter.annotation,)
    if not any(info.min is not None or info.max is not None or info.parser for info in infos):
        if kind in (str, str | None) or (kind in (bool, bool | None) and isinstance(value, bool)):
            return value
        if kind in (int, int | None) and _NUMBER.fullmatch(value):
            return int(value)
        if kind in (list[str], list[str] | None):
            return list(value)
    raise ValueError(parameter.name)


def _reported(error: typer.TyperException, typed: Sequence[str], path: str) -> Exception:
    """Print a usage error, and return the exception that ends the command."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return error
    from trunkline.cli.usage_error import print_usage_error

    return typer.Exit(print_usage_error(error, typed, path))


def _path(info_name: str | None, parent: Any) -> str:
    return f"{parent.command_path} {info_name}" if parent else "trunkline"
