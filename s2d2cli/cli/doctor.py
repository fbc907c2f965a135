"""`s2d2 doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from s2d2cli.cli.words import ConfigDirs, Plugins, load_plugins, use_folders

if TYPE_CHECKING:
    from s2d2cli.runs.doctor import Finding

ORDER = ("ok", "warning", "problem")


def doctor(
    results: Annotated[
        str, typer.Option("--results", "-o", metavar="FOLDER", help="The folder that runs would be kept in.")
    ] = "results",
    plugins: Plugins = None,
    config_dir: ConfigDirs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check whether s2d2 can work here: versions, device, extras, sandbox, caches, folders, and an answer from tiny.

    The exit code is 1 when something is a problem.
    """
    use_folders(config_dir)
    load_plugins(plugins)
    from s2d2cli.runs.doctor import examine

    found = []
    for finding in examine(results):
        found.append(finding)
        if not as_json:
            typer.echo(told(finding))
    worst = max((finding.status for finding in found), key=ORDER.index)
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps({"status": worst, "findings": [asdict(one) for one in found]}, indent=1))
    if worst == "problem":
        raise typer.Exit(1)


def told(finding: Finding) -> str:
    advice = f"; {finding.advice}" if finding.advice else ""
    return f"{finding.status:7}  {finding.name:13}  {finding.said}{advice}"
