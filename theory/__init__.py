"""What the papers claim, as functions: optimal weights, bounds, checks."""
