// A micro-tile is a plain (rows, depth, cols) contraction once dims of extent 1 are gone.
transform.named_sequence @drop_unit_dims(%func: !transform.any_op {transform.readonly}) {
  transform.apply_patterns to %func {
    transform.apply_patterns.linalg.fold_unit_extent_dims_via_slices
    transform.apply_patterns.linalg.swap_extract_slice_with_fill
  } : !transform.any_op
  transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
  transform.yield
}
