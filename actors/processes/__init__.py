"""Step processes: what is said to them (`wire`), how code gets there (`code`), what they do (`child`), and the
handle by which a shard holds one (`handle`). It imports nothing: a step process begins here, and must begin quickly.
"""
