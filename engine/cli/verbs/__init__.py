"""One module per verb; its ``command`` is what the group ``weir`` finds when the verb is typed."""
