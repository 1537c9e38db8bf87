"""The decoder of a multimodal config.json: its text part, with what the whole config says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scenarios.models.config_form import with_class_defaults, with_type
from scenarios.models.families import FAMILIES, TEXT_PARTS, TEXT_TYPES, VERSIONS
from scenarios.models.unmodelled import REFUSED

#: Said of the whole model, and true of its text part unless that says otherwise.
_SHARED = (
    "tie_word_embeddings",
    "quantization_config",
    "compression_config",
    "quantization",
    "quantize",
    "torch_dtype",
    "dtype",
)
#: Towers, by the key of their config.
_TOWERS = {
    "vision_config": "vision tower",
    "vit_config": "vision tower",
    "visual": "vision tower",
    "audio_config": "audio tower",
    "tts_config": "speech decoder",
}
#: Types that are known under their own name, and those that an architecture may name.
_KNOWN = frozenset({*FAMILIES, *REFUSED, *TEXT_TYPES, *VERSIONS})
_NAMES = [*TEXT_TYPES, *VERSIONS, *REFUSED, *FAMILIES]


def _decoder_of(text: Mapping[str, Any]) -> Any:
    """The type of the decoder of a config: its own, or what it is as text, by its version where that decides."""
    model_type = text.get("model_type")
    if not isinstance(model_type, str):
        return model_type
    versions = VERSIONS.get(model_type)
    if versions:
        return versions.get(str(text.get("version")), model_type)
    return TEXT_TYPES.get(model_type, model_type)


def text_part(config: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """(the config of the decoder, what is left out of the whole in words).

    A config without towers is its own text part. Tokens that come from images are tokens of the decoder: they count in
    `workload.input_tokens`.
    """
    thinker = config.get("thinker_config")  # of Omni models: the part that understands and writes
    if isinstance(thinker, Mapping) and "hidden_size" not in config:
        whole = {key: config[key] for key in _SHARED if key in config}
        text, without = text_part({"model_type": config.get("model_type"), **whole, **thinker})
        return text, " and ".join(part for part in (without, "talker") if part)
    inner = next((config[key] for key in TEXT_PARTS if isinstance(config.get(key), Mapping)), None)
    text = dict(config) if inner is None else dict(inner)
    if inner is not None:
        text.setdefault("model_type", config.get("model_type"))
        for key in _SHARED:
            if key in config and key not in text:
                text[key] = config[key]
    text = with_type(text, _KNOWN, _NAMES)
    text["model_type"] = _decoder_of(text)
    if inner is not None:
        text = with_class_defaults(text)
    towers = [words for key, words in _TOWERS.items() if isinstance(config.get(key), Mapping)]
    return text, " and ".join(dict.fromkeys(towers))
