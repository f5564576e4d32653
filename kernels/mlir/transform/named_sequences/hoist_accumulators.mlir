// Accumulators into registers: their loads and stores leave the reduction loops.
transform.named_sequence @hoist_accumulators(%func: !transform.any_op {transform.readonly}) {
  // Before canonicalisation, which takes a reduction of extent 1 for no reduction.
  transform.apply_patterns to %func {
    $sink_casts
    transform.apply_patterns.tensor.fold_tensor_subset_ops_into_vector_transfers
    transform.apply_patterns.vector.reduction_to_contract
    transform.apply_patterns.vector.transfer_permutation_patterns
  } : !transform.any_op
  transform.apply_patterns to %func {
    transform.apply_patterns.linalg.tiling_canonicalization
    transform.apply_patterns.canonicalization
    transform.apply_patterns.tensor.fold_tensor_subset_ops_into_vector_transfers
    transform.apply_patterns.vector.transfer_permutation_patterns
  } : !transform.any_op
  transform.apply_cse to %func : !transform.any_op
  %loops = transform.structured.match ops{["scf.for"]} attributes{accumulates} in %func
      : (!transform.any_op) -> !transform.any_op
  transform.apply_licm to %loops : !transform.any_op
  transform.foreach %loops : !transform.any_op {
  ^bb0(%loop: !transform.any_op):
    transform.loop.hoist_loop_invariant_subsets %loop : !transform.any_op
  }
  transform.apply_patterns to %func {
    transform.apply_patterns.canonicalization
    transform.apply_patterns.tensor.fold_tensor_subset_ops_into_vector_transfers
  } : !transform.any_op
  transform.apply_cse to %func : !transform.any_op
  transform.yield
}
