// C is packed: what it starts from is written where the sums are made.
transform.apply_patterns to %func {
  transform.apply_patterns.canonicalization
} : !transform.any_op
