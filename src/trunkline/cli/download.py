"""`trunkline task download`: artifacts as files, never outside the folder and never over another file."""

from __future__ import annotations

import mimetypes
import os
import re
from pathlib import Path

import msgspec
from msgspec import UNSET

from trunkline.cli.console import print_field, print_json, print_notice
from trunkline.cli.results import file_bytes, show_ids
from trunkline.cli.session import Session
from trunkline.errors import Misuse
from trunkline.wire import v1
from trunkline.wire.types import Artifact, Part

# What a name may be made of on any system; the rest becomes an underscore.
_UNSAFE = re.compile(r"[^A-Za-z0-9._ ()\-]+")
_LONGEST = 120
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


async def download(session: Session) -> None:
    """Save a task's artifacts as files."""
    config = session.config
    session.task_id = session.argument("the task's id")
    await session.compatible_card()
    result = await session.client.get(session.task_id)
    task = result.task
    if task is None:
        raise Misuse(f"{session.task_id} is no task")
    saved = save(task.artifacts, Path(config.text("dir")), force=config.flag("force"))
    if config.as_json:
        print_json(v1.task(task))
        for path in saved:
            print_notice("Saved", str(path))
        return
    show_ids(task.id, task.context_id, task.status.state.value)
    for path in saved:
        print_field("Saved", str(path))
    print_field("Files", str(len(saved)))


def save(artifacts: tuple[Artifact, ...], folder: Path, *, force: bool) -> list[Path]:
    """Write every part that is here into the folder; what is elsewhere is said and not fetched.

    Raises:
        Misuse: a file is there already, or cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    saved, taken = list[Path](), dict[str, int]()
    for artifact in artifacts:
        for place, part in enumerate(artifact.parts):
            if part.url is not None:
                name = part.filename or artifact.artifact_id
                print_notice("Warning", f"{name} is at {part.url}; it is not fetched")
                continue
            name = _free(safe_name(artifact, place, part), taken)
            saved.append(_write(folder / name, _bytes(part), force=force))
    return saved


def safe_name(artifact: Artifact, place: int, part: Part) -> str:
    """A file's name from what the agent calls it: one name, no path, nothing hidden, nothing special."""
    told = part.filename or artifact.name or artifact.artifact_id
    name = _UNSAFE.sub("_", re.split(r"[/\\]", told)[-1]).lstrip(". -").rstrip(". ")
    stem, dot, ending = name.rpartition(".")
    if not part.filename:
        stem, dot, ending = name, ".", _ending(part)
        stem += f"-{place}" if len(artifact.parts) > 1 else ""
    whole = f"{stem[:_LONGEST]}{dot}{ending[:16]}" if dot else ending[:_LONGEST]
    whole = whole.strip(". ") or f"artifact-{place}"
    return f"_{whole}" if _RESERVED.fullmatch(whole) else whole


def _ending(part: Part) -> str:
    if part.data is not UNSET:
        return "json"
    if part.text is not None and part.media_type in {"", "text/plain"}:
        return "txt"
    return (mimetypes.guess_extension(part.media_type) or ".bin").removeprefix(".")


def _free(name: str, taken: dict[str, int]) -> str:
    """A name that no other file of this task has; two artifacts may be called the same."""
    stem, dot, ending = name.rpartition(".")
    found, number = name, taken.get(name.lower(), 1)
    while found.lower() in taken:
        number += 1
        found = f"{stem}-{number}.{ending}" if dot else f"{name}-{number}"
    # Where to go on: there may be thousands of one name.
    taken[name.lower()] = number
    taken.setdefault(found.lower(), 1)
    return found


def _bytes(part: Part) -> bytes:
    if part.text is not None:
        return part.text.encode()
    if part.data is not UNSET:
        return msgspec.json.format(msgspec.json.encode(part.data)) + b"\n"
    return file_bytes(part)


def _write(path: Path, body: bytes, *, force: bool) -> Path:
    # A link that lies there already must not lead elsewhere.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if force else os.O_EXCL)
    try:
        descriptor = os.open(path, flags, 0o644)
    except FileExistsError:
        raise Misuse(
            f"{path} is there already; --force writes over it, --dir chooses another folder"
        ) from None
    except OSError as error:
        raise Misuse(f"{path}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(body)
    return path
