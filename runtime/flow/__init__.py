"""What users write: flows, steps and the operations between them; and the driver that runs flow code."""
