"""``wellhead doctor``: is every part well, and if not, what to do."""

from __future__ import annotations

from dataclasses import asdict

import typer

from ops.cli_client import AsJson, DataDir, print_json, stack_settings

MARKS = {"ok": "ok     ", "wrong": "WRONG  "}


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(doctor)


def doctor(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Check every part; exit status 1 when something is wrong."""
    from ops.doctor import WRONG, examine
    from pipeline.wiring import build

    settings = stack_settings(data_dir)
    findings = []
    for finding in examine(settings, build(settings)):
        findings.append(finding)
        if not as_json:
            typer.echo(f"{MARKS.get(finding.state, 'warning')} {finding.part:14} {finding.detail}")
            if finding.fix:
                typer.echo(f"{'':23}→ {finding.fix}")
    well = not any(finding.state == WRONG for finding in findings)
    if as_json:
        print_json({"ok": well, "findings": [asdict(finding) for finding in findings]})
    raise typer.Exit(0 if well else 1)
