transform.apply_patterns to %func {
  transform.apply_patterns.canonicalization
  transform.apply_patterns.memref.fold_memref_alias_ops
} : !transform.any_op
transform.apply_cse to %func : !transform.any_op
transform.apply_patterns to %func {
  transform.apply_patterns.canonicalization
} : !transform.any_op
