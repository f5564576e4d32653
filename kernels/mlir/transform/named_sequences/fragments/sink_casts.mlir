// Operands are widened before they are broadcast, so that the product is a contraction.
transform.apply_patterns.vector.sink_ops
