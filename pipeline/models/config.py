"""The config section `model`: the part that every family shares."""

from dataclasses import dataclass

from data_prep.fields import result

THETA = 10_000.0  # wavelengths of sinusoidal and rotary positions are 2π to theta · 2π


@dataclass
class ModelConfig:
    """The options of all encoders; the YAML file of the model sets the kind."""

    kind: str = result("bert", "architecture", choices=("bert", "elmo"))

    def check(self) -> None:
        """Raise `UsageError` for contradicting options."""


def setting(name: str, value: object) -> str:
    """Format an option of the model as a command-line override."""
    return f"model.{name}={str(value).lower() if isinstance(value, bool) else value}"
