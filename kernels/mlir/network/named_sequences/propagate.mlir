// Packs and unpacks along the edges of a module; a pair that meets is gone.
transform.named_sequence @propagate(%func: !transform.any_op {transform.readonly}) {
  transform.apply_patterns to %func {
    transform.apply_patterns.linalg.data_layout_propagation
  } : !transform.any_op
  transform.apply_patterns to %func {
    transform.apply_patterns.canonicalization
    transform.apply_patterns.linalg.fold_pack_unpack_into_empty
    transform.apply_patterns.tensor.fold_into_pack_and_unpack
  } : !transform.any_op
  transform.apply_cse to %func : !transform.any_op
  transform.yield
}
