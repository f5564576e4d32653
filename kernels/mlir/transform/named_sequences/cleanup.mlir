// Static shapes after tiling: fold bounds, drop single-trip loops.
transform.named_sequence @cleanup(%func: !transform.any_op {transform.readonly}) {
  transform.apply_patterns to %func {
    transform.apply_patterns.linalg.tiling_canonicalization
    transform.apply_patterns.scf.for_loop_canonicalization
    transform.apply_patterns.canonicalization
  } : !transform.any_op
  transform.apply_cse to %func : !transform.any_op
  transform.yield
}
