"""The public call: predict(scenario) -> Prediction, and what is read off it: memory, TTFT, intervals, gains,
reasons."""
