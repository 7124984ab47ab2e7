"""Who does it: the actors of a shard, and in `kit` the machinery they run on."""
