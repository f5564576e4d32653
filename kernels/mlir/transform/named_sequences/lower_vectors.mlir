// Contractions to outer products, that is to fused multiply-adds; then rank-1 accesses.
transform.named_sequence @lower_vectors(%func: !transform.any_op {transform.readonly}) {
  transform.apply_patterns to %func {
    transform.apply_patterns.vector.lower_contraction lowering_strategy = "outerproduct"
    transform.apply_patterns.vector.lower_outerproduct
  } : !transform.any_op
  transform.apply_patterns to %func {
    transform.apply_patterns.vector.lower_transfer max_transfer_rank = 1
    transform.apply_patterns.vector.lower_transpose lowering_strategy = "eltwise"
    transform.apply_patterns.vector.lower_shape_cast
  } : !transform.any_op
  transform.apply_patterns to %func {
    transform.apply_patterns.canonicalization
  } : !transform.any_op
  transform.yield
}
