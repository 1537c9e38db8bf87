"""What a serving engine decides, the same for prediction and measurement: who gets which part of the KV cache."""
