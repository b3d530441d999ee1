"""Commands to make and serve agents and to look after their store: `new`, `serve`, `store …`, `keys …` …"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trunkline.cli.commands.parsing import ClientGroup, UsageCommand, prints_json
from trunkline.errors import Misuse

SERVE = "Serve agents"
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", help="The store's URL or a hub's folder; the setting `store` unless told."),
]
Reload = Annotated[
    bool, typer.Option("--reload", help="Begin anew when a file of Python changes here; for development.")
]
Dev = Annotated[bool, typer.Option(help="Show exception texts to callers; let webhooks go to this machine.")]
WorkerCount = Annotated[
    int | None, typer.Option(help="How many processes serve; more than one needs PostgreSQL.")
]
AnnouncedTo = Annotated[
    str | None, typer.Option(metavar="HUB_URL", help="Have a hub list the agents while they are served.")
]
Watch = Annotated[bool, typer.Option("--watch", help="Go on showing it, until Ctrl-C.")]
ListedId = Annotated[str, typer.Argument(metavar="ID", help="The id that the list shows.")]


def begin(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The project's name, and its directory's.")],
) -> None:
    """Write a project that runs: an agent, its test, a container."""
    from pathlib import Path

    from trunkline.cli.project import write_project

    for path in write_project(name, Path()):
        print(path)
    print(f"\nNext: cd {name}\n      trunkline serve agent:agent")


def serve(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:AGENT...",
            help="Where each Agent is, e.g. scribe:agent; the first is at the origin.",
        ),
    ],
    *,
    host: Annotated[str | None, typer.Option(help="Address to bind to; loopback unless told.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind to.")] = None,
    store: Annotated[str | None, typer.Option(help="sqlite:///FILE, postgresql://… or memory:")] = None,
    workers: WorkerCount = None,
    key: Annotated[list[str] | None, typer.Option(help="A key that callers must send; repeatable.")] = None,
    public_url: Annotated[str | None, typer.Option(help="The address that the card names.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Serve other machines without any key.")] = False,
    dev: Dev = False,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.")] = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="Serve Prometheus metrics at /metrics.")] = False,
    announce: AnnouncedTo = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting as name=value.")] = None,
    reload: Reload = False,
) -> None:
    """Serve agents over HTTP until interrupted."""
    if reload:
        from trunkline.cli.reload import run_reloading

        raise typer.Exit(run_reloading(sys.argv[1:]))
    from trunkline.cli.serve import run

    run(
        targets,
        {
            "host": host,
            "port": port,
            "store": store,
            "workers": workers,
            "keys": tuple(key) if key else None,
            "public_url": public_url,
            "open": open_ or None,
            "dev": dev or None,
            "log_level": log_level,
            "log_format": log_format,
            "metrics": metrics or None,
            "announce": announce,
        },
        settings or [],
    )


store_app = typer.Typer(
    cls=ClientGroup,
    no_args_is_help=True,
    help="Look after a store: check, migrate, prune, waiting, cancel, export, import.",
)


@store_app.command("check", cls=UsageCommand)
@prints_json
def store_check(
    *,
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Read everything and say what is wrong; exit code 1 if anything is. Changes nothing."""
    from trunkline.cli.store import check

    raise typer.Exit(check(store, as_json=as_json))


@store_app.command("migrate", cls=UsageCommand)
def store_migrate(*, store: StoreUrl = None) -> None:
    """Bring the schema up to date."""
    from trunkline.cli.store import migrate

    migrate(store)


@store_app.command("prune", cls=UsageCommand)
def store_prune(
    *,
    store: StoreUrl = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="90s, 15m, 12h, 7d; the setting `retention` unless told."),
    ] = None,
) -> None:
    """Forget tasks that ended longer ago than that, and make the others small."""
    from trunkline.cli.store import prune

    prune(store, older_than)


@store_app.command("waiting", cls=UsageCommand)
@prints_json
def store_waiting(
    *,
    store: StoreUrl = None,
    tenant: Annotated[str, typer.Option(help="Only what is this tenant's.")] = "",
    as_json: bool,
) -> None:
    """List open tasks whose agent no running process carries."""
    from trunkline.cli.store import waiting

    waiting(store, tenant, as_json=as_json)


@store_app.command("cancel", cls=UsageCommand)
def store_cancel(
    task_id: Annotated[str, typer.Argument(metavar="TASK", help="The id of a task that waits.")],
    *,
    store: StoreUrl = None,
    tenant: Annotated[str, typer.Option(help="The tenant that the task belongs to.")] = "default",
) -> None:
    """Cancel a task whose agent no running process carries."""
    from trunkline.cli.store import cancel

    cancel(store, task_id, tenant)


@store_app.command("export", cls=UsageCommand)
def store_export(
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="Where to; standard output unless told.")
    ] = "-",
    *,
    store: StoreUrl = None,
    tenant: Annotated[str | None, typer.Option(help="Only what is this tenant's.")] = None,
) -> None:
    """Write logs, keys (as digests), catalogue and ceremonies as JSON lines, also beside a server."""
    from trunkline.cli.store import export

    export(store, tenant, file)


@store_app.command("import", cls=UsageCommand)
def store_import(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="An export; - for standard input.")],
    *,
    store: StoreUrl = None,
) -> None:
    """Write an export into a store; what is there already is skipped."""
    from trunkline.cli.store import import_

    import_(store, file)


keys_app = typer.Typer(
    cls=ClientGroup, no_args_is_help=True, help="The keys that callers send: create, list, revoke, rotate."
)


@keys_app.command("create", cls=UsageCommand)
@prints_json
def keys_create(
    *,
    owner: Annotated[str, typer.Option(help="Whose tasks it opens; several keys may share an owner.")],
    tenant: Annotated[str, typer.Option(help="The tenant that the owner belongs to.")] = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="tasks:read, tasks:write, answer, announce, metrics or admin; repeatable; "
            "the first two unless told."
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="AGE", help="90s, 15m, 12h, 90d; never unless told.")
    ] = None,
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Make a key and print it once; only its digest is stored."""
    from trunkline.cli.keys import create

    create(store, owner, tenant=tenant, scopes=scope or (), expires=expires, as_json=as_json)


@keys_app.command("list", cls=UsageCommand)
@prints_json
def keys_list(*, store: StoreUrl = None, as_json: bool) -> None:
    """List all keys, revoked ones too."""
    from trunkline.cli.keys import show

    show(store, as_json=as_json)


@keys_app.command("revoke", cls=UsageCommand)
def keys_revoke(key_id: ListedId, *, store: StoreUrl = None) -> None:
    """End a key at once and for good."""
    from trunkline.cli.keys import revoke

    revoke(store, key_id)


@keys_app.command("rotate", cls=UsageCommand)
@prints_json
def keys_rotate(
    key_id: ListedId = "",
    *,
    grace: Annotated[
        str, typer.Option(metavar="AGE", help="How long the secret before still opens; 24h unless told.")
    ] = "",
    signing: Annotated[
        bool, typer.Option("--signing", help="Not a caller's key: the one that signs webhooks.")
    ] = False,
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Give a key a new secret and print it once; its id, owner and scopes stay."""
    from trunkline.cli.keys import rotate, rotate_signing

    if bool(key_id) is signing:
        raise Misuse("name one key, or say --signing")
    if signing and grace:
        raise Misuse("--grace is for callers' keys; a signing key goes on for a day")
    if signing:
        rotate_signing(store, as_json=as_json)
    else:
        rotate(store, key_id, grace or "24h", as_json=as_json)


deliveries_app = typer.Typer(
    cls=ClientGroup, no_args_is_help=True, help="Notifications that were sent: list, show, replay."
)
OfTask = Annotated[str, typer.Option("--task", metavar="ID", help="Only those of this task.")]
OfTenant = Annotated[str, typer.Option("--tenant", help="Only this tenant's.")]


@deliveries_app.command("list", cls=UsageCommand)
@prints_json
def deliveries_list(
    *,
    task: OfTask = "",
    state: Annotated[str, typer.Option(help="pending, done, dead or dropped.")] = "",
    tenant: OfTenant = "",
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """List deliveries, those of the newest tasks first; also beside a running server."""
    from trunkline.cli.deliveries import DeliveryFilter, show_all

    show_all(store, DeliveryFilter(task, state, tenant), limit, as_json=as_json)


@deliveries_app.command("show", cls=UsageCommand)
@prints_json
def deliveries_show(delivery_id: ListedId, *, store: StoreUrl = None, as_json: bool) -> None:
    """Show all that is known of one delivery."""
    from trunkline.cli.deliveries import show

    show(store, delivery_id, as_json=as_json)


@deliveries_app.command("replay", cls=UsageCommand)
def deliveries_replay(
    delivery_id: ListedId = "",
    *,
    dead: Annotated[bool, typer.Option("--dead", help="All that were given up.")] = False,
    task: OfTask = "",
    tenant: OfTenant = "",
    store: StoreUrl = None,
) -> None:
    """Post a delivery again that has ended, or all dead ones; their ids stay."""
    from trunkline.cli.deliveries import DeliveryFilter, replay, replay_dead

    if bool(delivery_id) is dead:
        raise Misuse("name one delivery, or say --dead")
    if dead:
        replay_dead(store, DeliveryFilter(task, tenant=tenant))
    else:
        replay(store, delivery_id)


inbox_app = typer.Typer(
    cls=ClientGroup, no_args_is_help=True, help="What tasks ask of people: list, show, answer."
)
AskingTask = Annotated[str, typer.Argument(metavar="TASK", help="The id of the task that asks.")]


@inbox_app.command("list", cls=UsageCommand)
@prints_json
def inbox_list(
    *,
    closed: Annotated[bool, typer.Option("--closed", help="Those that have ended.")] = False,
    tenant: OfTenant = "",
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    watch: Watch = False,
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """List the questions of a tenant's tasks, newest first; also beside a running server."""
    from rich.console import Console

    from trunkline.cli import inbox as command

    if watch and (as_json or closed):
        raise Misuse("--watch shows a table of open questions; leave out JSON and --closed")
    if watch:
        command.watch(store, tenant, limit, console=Console(highlight=False))
        return
    command.show_all(store, "closed" if closed else "open", tenant, limit, as_json=as_json)


@inbox_app.command("show", cls=UsageCommand)
@prints_json
def inbox_show(task_id: AskingTask, *, tenant: OfTenant = "", store: StoreUrl = None, as_json: bool) -> None:
    """Show all that is known of the question of a task."""
    from trunkline.cli.inbox import show

    show(store, task_id, tenant, as_json=as_json)


@inbox_app.command("answer", cls=UsageCommand)
@prints_json
def inbox_answer(
    task_id: AskingTask,
    text: Annotated[str, typer.Argument(help="The answer; with --reject the reason.")] = "",
    *,
    data: Annotated[str, typer.Option(help="The answer as JSON.")] = "",
    accept: Annotated[bool, typer.Option("--accept", help="Answer what is proposed.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Decline to answer.")] = False,
    question: Annotated[str, typer.Option(metavar="ID", help="Only if this is what is asked.")] = "",
    tenant: OfTenant = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Answer the question of a task by a text, by data, or by what it proposes; or decline."""
    import msgspec

    from trunkline.cli.inbox import answer

    if sum((accept, reject, bool(data), bool(text) and not reject)) != 1:
        raise Misuse("give one of TEXT, --data, --accept and --reject")
    form: dict[str, object] = {"decision": "respond", "text": text}
    if accept:
        form = {"decision": "accept"}
    elif reject:
        form = {"decision": "reject", "text": text}
    elif data:
        try:
            form = {"decision": "edit", "data": msgspec.json.decode(data)}
        except msgspec.DecodeError as error:
            raise Misuse(f"--data is no JSON: {error}") from None
    answer(store, task_id, tenant, {**form, "question": question}, as_json=as_json)


@prints_json
def fleet(
    *,
    watch: Watch = False,
    agent: Annotated[str, typer.Option("--agent", help="Only this agent.")] = "",
    tenant: OfTenant = "",
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Show how agents did: tasks, success, durations, cost, and the last 24 hours."""
    from trunkline.cli import fleet as command

    if watch and as_json:
        raise Misuse("--watch shows a table; leave it out for JSON")
    if watch:
        from rich.console import Console

        command.watch(store, tenant, agent, console=Console(highlight=False))
    else:
        command.show(store, tenant, agent, as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.command("new", cls=UsageCommand, rich_help_panel=SERVE)(begin)
    app.command(cls=UsageCommand, rich_help_panel=SERVE)(serve)
    app.command("fleet", cls=UsageCommand, rich_help_panel=SERVE)(fleet)
    for name, group in (
        ("store", store_app),
        ("keys", keys_app),
        ("deliveries", deliveries_app),
        ("inbox", inbox_app),
    ):
        app.add_typer(group, name=name, rich_help_panel=SERVE)
