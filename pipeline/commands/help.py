"""`sesame --help` and `sesame <command> --help`."""

from rich.table import Table

from pipeline.commands.catalogue import COMMANDS, GROUPS


def show_help() -> None:
    """Print all commands in groups, within 80 columns."""
    print("usage: sesame <command> [options] [Hydra overrides]\n")
    print("Pretrain BERT and ELMo from raw text to scored, loadable models.")
    for group, names in GROUPS.items():
        print(f"\n{group}:")
        for name in names:
            print(f"  {name:<10} {COMMANDS[name].help}")
    print("\nTry: sesame run experiment=demo; sesame pretrain --help lists that stage's keys.")
    print("sesame --version prints the version; sesame -sc install=bash, tab completion.")


def show_command_help(name: str) -> None:
    """Print a command's options; for a stage also its keys and config groups."""
    from pipeline.config.compose import CONF, describe_keys, group_options
    from pipeline.stages import STAGES

    command = COMMANDS[name]
    print(f"usage: sesame {name} [options] {command.takes}\n\n{command.help}\n")
    for option, meaning in command.options.items():
        print(f"  {option.rstrip('='):<12} {meaning}")
    if name not in STAGES and name not in ("run", "plan"):
        return
    stage = STAGES.get(name)
    sections = stage.sections + stage.obeyed if stage else ("name", "seed", "paths")
    table = Table(box=None, pad_edge=False)
    for heading in ("key", "default", "meaning"):
        table.add_column(heading, overflow="fold")
    for key, default, meaning in describe_keys(("paths", *sections)):
        table.add_row(key, "" if default is None else str(default), meaning.replace("[", "\\["))
    from rich import print as show

    show(table)
    groups = [group for group in sections if (CONF / group).is_dir()]
    for group in groups if name in STAGES else ["experiment"]:
        print(f"\n{group}= one of: {', '.join(group_options(group))}")
