"""The transitions, one module per kind of event."""
