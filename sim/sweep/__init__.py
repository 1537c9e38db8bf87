"""Many scenarios: a grid of settings predicted point by point, on local processes, a cluster or shard by shard."""
