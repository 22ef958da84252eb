"""Names (``jax.ad_checkpoint.checkpoint_name``) of what rematerialization may keep of a routed layer.

Whoever keeps all of them moves no token a second time in the reverse pass, and multiplies no expert's matrix again.
"""

LATENT = "moe_latent"  # tokens in the latent space of experts that have one, before they are normalized
DISPATCHED = "moe_dispatched"  # the rows that an expert reads
GATED = "moe_gated"  # row @ gate
RAISED = "moe_raised"  # row @ up
RECEIVED = "moe_received"  # the rows that came back to be weighted and summed

SAVED = (LATENT, DISPATCHED, GATED, RAISED, RECEIVED)
