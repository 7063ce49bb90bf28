"""From the fluent API to the plan: job graph, validation, chaining, and its expansion into subtasks and channels."""
