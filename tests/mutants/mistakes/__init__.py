"""What is taken away or done wrong: one module for each part of the engine, a function for each mistake."""
