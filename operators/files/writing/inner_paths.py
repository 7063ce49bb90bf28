"""Names of files in state, and where they may lead: nowhere out of the directory that they belong to.

A checkpoint may come from anywhere, and its checksums say that it is whole, not that it is honest. Code that commits,
moves, cuts or deletes a file that state names therefore makes its path here
(:mod:`state_backends.snapshots.file_places` does the same for the files of checkpoints).
"""

from __future__ import annotations

import posixpath

from engine.elements.errors import StateError


def path_inside(directory: str, *parts: str) -> str:
    """The path of a file in ``directory``; empty parts are left out.

    Raises :class:`engine.elements.errors.StateError` when a part is absolute, has a ``..`` in it, or is no name.
    """
    for part in parts:
        if part[:1] == "/" or "\0" in part or (".." in part and ".." in part.split("/")):
            raise leads_out(part, f"leads out of {directory}")
    return posixpath.join(directory, *filter(None, parts))


def hidden_inside(directory: str, relative: str) -> str:
    """The same for a file that readers do not see. What they see is not deleted or cut because some state says so."""
    if not posixpath.basename(relative).startswith("."):
        raise leads_out(relative, f"is no hidden file of a sink in {directory}")
    return path_inside(directory, relative)


def leads_out(path: str, why: str) -> StateError:
    """The error for a file that state names and has no right to."""
    return StateError(
        f"{path!r}, as the restored state says, {why}. Nothing was done to it\n"
        "  fix: do not use this checkpoint: it was changed, or not written by Weir"
    )
