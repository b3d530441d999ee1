"""Declares client commands: a function, its arguments and the names of its options, as a Typer command.

Nothing of the client is imported here: every command is paid for by `trunkline serve` too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main
from msgspec import Struct
from msgspec.structs import replace
from typer.core import TyperCommand, TyperGroup

from trunkline.cli.options import OPTIONS, Option

if TYPE_CHECKING:
    from trunkline.cli.command import Work

_NUMBER = re.compile("[0-9]{1,9}")
PARTS = ("text", "file", "data", "media_type")


class Invocation(Struct, frozen=True):
    """A command line as it was typed: arguments, flags, and the flags of message parts in their order."""

    arguments: tuple[str, ...]
    flags: dict[str, Any]
    parts: tuple[tuple[str, str], ...] = ()

    def with_flags(self, **flags: Any) -> Invocation:
        """The same with these flags as well."""
        return replace(self, flags={**self.flags, **flags})


def run(invocation: Invocation, work: Work, *, agent_only: bool = False, use_login: bool = True) -> None:
    """Run what a command does with an agent, and leave with its exit code; see `cli.command`."""
    from trunkline.cli.command import run_command

    run_command(invocation, work, agent_only=agent_only, use_login=use_login)


class PlainParameter:
    """Takes what was typed for a text, a number or a list of texts as it is; Typer judges everything else.

    To judge a value Typer loads pydantic, which takes a sixth of the time in which a server starts.
    """

    __slots__ = ("_kind", "_own")

    def __init__(self, parameter: Any) -> None:
        self._kind = parameter.type_descriptor.annotation
        self._own: Callable[[], Any] = parameter.get_runtime_param

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value that a command is given."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self._kind is str and type(value) is str:
            return value
        if self._kind is int and type(value) is str and _NUMBER.fullmatch(value):
            return int(value)
        if self._kind == list[str] and type(value) in (list, tuple):
            return list(value)
        return self._own().coerce(value, param=param, ctx=ctx)


class UsageCommand(TyperCommand):
    """A command whose mistakes of usage are told as the contract wants."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command; those that are plain need nothing to be loaded."""
        return _taken_plainly(super().get_params(ctx))

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse what was typed; a mistake of usage ends here."""
        typed = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except typer.TyperException as error:
            raise _usage_error(
                error, typed, f"{parent.command_path} {info_name}" if parent else "trunkline"
            ) from None


class ClientCommand(UsageCommand):
    """A command that calls an agent, and knows the order of the parts of a message.

    Its options are made when it is called or shown: of dozens of commands one is.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command, made now."""
        whole = getattr(self.callback, "whole", None)
        if whole is not None:
            alone = typer.Typer(add_completion=False)
            alone.command()(whole())
            built = typer.main.get_command(alone)
            self.params, self.callback = built.params, built.callback
        return super().get_params(ctx)

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

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the group itself; they are read before those of any of its commands."""
        return _taken_plainly(super().get_params(ctx))

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
            raise _usage_error(error, args, ctx.command_path) from None


class CardGroup(ClientGroup):
    """`card get` is the only thing to do with a card."""

    default = "get"


def takes(
    *names: str, arguments: str, about: str = ""
) -> Callable[[Callable[[Invocation], None]], Callable[..., None]]:
    """Give a function arguments and options: those of the table in `options` that have these names."""

    def made(function: Callable[[Invocation], None]) -> Callable[..., None]:
        def command(ctx: typer.Context, words: Sequence[str] | None = None, **flags: Any) -> None:
            given = {name: value for name, value in flags.items() if value not in (None, [], ())}
            if given.pop("json", False):
                given["output"] = "json"
            function(Invocation(tuple(words or ()), given, ctx.meta.get("parts", ())))

        def whole() -> Callable[..., None]:
            return _signed(
                command, [*([_words(arguments, about)] if arguments else ()), *map(_parameter, names)]
            )

        def short() -> None:
            # Never called: `ClientCommand.get_params` puts the whole one in its place.
            raise NotImplementedError

        for each in (command, short):
            each.__name__, each.__doc__ = function.__name__, function.__doc__
        vars(short)["whole"] = whole
        return short

    return made


def prints_json(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command that calls no agent and takes `as_json` the options by which all are asked for JSON."""
    own = inspect.signature(function, eval_str=True).parameters

    def command(ctx: typer.Context, **flags: Any) -> None:
        from trunkline.cli.configuration import is_json_wanted

        del ctx
        output, json = flags.pop("output"), flags.pop("json")
        function(**flags, as_json=is_json_wanted("json" if json else output))

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    kept = [each for name, each in own.items() if name != "as_json"]
    return _signed(command, [*kept, *map(_parameter, ("output", "json"))])


def _signed(command: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    words = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    signature = inspect.Signature([context, *words])
    vars(command)["__signature__"] = signature
    command.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return command


def _words(metavar: str, about: str) -> inspect.Parameter:
    kind = Annotated[list[str] | None, typer.Argument(metavar=metavar, help=about, show_default=False)]
    return inspect.Parameter("words", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


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
    return inspect.Parameter(
        option.field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info]
    )


def _help(option: Option) -> str:
    default = option.default or ("no" if option.kind == "flag" else "")
    notes = [f"default: {default}" if default else "", option.variable]
    noted = "; ".join(note for note in notes if note)
    return f"{option.help} ({noted})" if noted else option.help


def _taken_plainly(parameters: list[Any]) -> list[Any]:
    """Have parameters that ask for nothing beyond their type taken as they were typed."""
    for each in parameters:
        _take_plainly(each)
    return parameters


def _take_plainly(parameter: Any) -> None:
    kind = getattr(parameter, "type_descriptor", None)
    if kind is None or "get_runtime_param" in vars(parameter):
        return
    if kind.is_path or kind.is_choice or kind.is_file or kind.is_ranged or kind.parameter_info.parser:
        return
    plain = PlainParameter(parameter)
    vars(parameter)["get_runtime_param"] = lambda: plain


def _usage_error(error: typer.TyperException, typed: list[str], path: str) -> Exception:
    if type(error).__name__ == "NoArgsIsHelpError":
        return error
    from trunkline.cli.failure import CommandFailure, is_json_typed, print_failure

    failure = CommandFailure("A2ACLI_ERR_USAGE", error.format_message(), hint=f"{path} --help")
    print_failure(failure, as_json=is_json_typed(typed))
    return typer.Exit(failure.exit)
