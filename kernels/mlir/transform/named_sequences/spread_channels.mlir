// Channels of several groups are read at once, and spread over lanes in registers.
transform.named_sequence @spread_channels(%func: !transform.any_op {transform.readonly}) {
  transform.apply_patterns to %func {
    transform.apply_patterns.vector.drop_unit_dims_with_shape_cast
    transform.apply_patterns.vector.flatten_vector_transfer_ops
  } : !transform.any_op
  transform.apply_patterns to %func {
    transform.apply_patterns.vector.lower_transpose lowering_strategy = "shuffle_1d"
    transform.apply_patterns.canonicalization
  } : !transform.any_op
  transform.yield
}
