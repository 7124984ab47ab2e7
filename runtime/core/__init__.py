"""Pure rules: plain functions over plain data; no clock, no thread, no I/O."""
