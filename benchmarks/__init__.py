"""How fast and how big Stepwell is: one module a question. `python -m benchmarks` answers all of them."""
