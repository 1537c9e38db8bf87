"""The fields of `engine.finegrained_tp_config`, spelled as vLLM-Ascend spells them in its --additional-config."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scenarios.traffic_settings import Part

#: Replicas that share one weight; 1 is a whole one on each.
Sharers = Annotated[int, Field(ge=1, le=4096, strict=True, json_schema_extra={"unit": "replicas"})]


class FinegrainedTp(Part):
    """Weights that neighbouring replicas share, product by product, while attention stays whole on each."""

    lmhead_tensor_parallel_size: Sharers = 1
    """Of the LM head: its input is gathered, and logits go back by an all-to-all."""
    oproj_tensor_parallel_size: Sharers = 1
    """Of attention's output projection: columns go round by an all-to-all, sums come back by a reduce-scatter."""
    embedding_tensor_parallel_size: Sharers = 1
    """Of the embedding: token ids are gathered, rows come back by a reduce-scatter."""
    mlp_tensor_parallel_size: Sharers = 1
    """Of the plain MLP of dense layers: its input is gathered, sums come back by a reduce-scatter."""

    @property
    def sizes(self) -> dict[str, int]:
        """Those above 1, by field."""
        return {name: size for name in type(self).model_fields if (size := getattr(self, name)) > 1}
