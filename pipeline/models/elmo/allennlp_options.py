"""Converts options.json of AllenNLP and bilm-tf to `ElmoConfig` and back, without torch.

A pair is options.json and weights.hdf5 in one folder, also under the longer names of published
pairs (elmo_2x4096_..._options.json).
"""

from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.fields import check, check_types
from data_prep.reading.untrusted import read_object
from pipeline.models.elmo.config import ElmoConfig

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"


def find_pair(folder: Path) -> tuple[Path, Path] | None:
    """Return the paths of options and weights in a folder; None if one is missing.

    Raises `UsageError` if there are several pairs.
    """
    found = [sorted(folder.glob(f"*{name}")) for name in (OPTIONS, WEIGHTS)]
    for name, files in zip((OPTIONS, WEIGHTS), found, strict=True):
        if len(files) > 1:
            raise UsageError(f"{folder}: has {len(files)} files that end in {name}; keep one pair")
    return (found[0][0], found[1][0]) if all(found) else None


def options_of(config: ElmoConfig) -> dict[str, Any]:
    """Return the content of options.json for a model."""
    from data_prep.tokenizers.characters import ALPHABET  # with its package, slow to import

    return {
        "bidirectional": True,
        "char_cnn": {
            "activation": config.activation,
            "embedding": {"dim": config.character_dim},
            "filters": config.filters,
            "max_characters_per_token": config.max_characters,
            "n_characters": ALPHABET,
            "n_highway": config.highways,
        },
        "dropout": config.dropout,
        "lstm": {
            # null means no clipping for both programs; bilm-tf would clip at 0.
            "cell_clip": config.cell_clip or None,
            "dim": config.cell,
            "n_layers": config.layers,
            "proj_clip": config.projection_clip or None,
            "projection_dim": config.projection,
            "use_skip_connections": True,
        },
        "n_negative_samples_batch": config.samples,
        "unroll_steps": config.window,
    }


def read_options(path: Path) -> ElmoConfig:
    """Read the model config of an options file. Raises `SesameError` if it is not supported."""
    from data_prep.tokenizers.characters import ALPHABET  # with its package, slow to import

    defaults = ElmoConfig()
    stated = read_object(path)
    try:
        lstm, characters = stated["lstm"], stated["char_cnn"]
        config = ElmoConfig(
            layers=lstm["n_layers"],
            cell=lstm["dim"],
            projection=lstm["projection_dim"],
            cell_clip=float(lstm.get("cell_clip") or 0),
            projection_clip=float(lstm.get("proj_clip") or 0),
            dropout=stated.get("dropout", defaults.dropout),
            character_dim=characters["embedding"]["dim"],
            max_characters=characters["max_characters_per_token"],
            filters=[list(each) for each in characters["filters"]],
            highways=characters["n_highway"],
            activation=characters["activation"],
            window=stated.get("unroll_steps", defaults.window),
            samples=stated.get("n_negative_samples_batch", defaults.samples),
        )
        symbols = characters["n_characters"]
        residual = bool(lstm.get("use_skip_connections")) or config.layers == 1
        check_types(config, "model.")
        check(config, "model.")
        config.check()
    except KeyError as error:
        raise SesameError(f"{path}: has no {error}, so these are no options of an ELMo") from error
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise SesameError(f"{path}: not the JSON of an ELMo's options") from error
    except UsageError as error:
        raise SesameError(f"{path}: {error}") from error
    if symbols not in (ALPHABET - 1, ALPHABET):
        raise SesameError(f"{path}: n_characters is {symbols!s:.40}; only {ALPHABET} can be read")
    if not residual:
        raise SesameError(f"{path}: layers without use_skip_connections cannot be read")
    return config
