transform.named_sequence @__transform_main(%$given: !transform.any_op {transform.consumed}) {
  $steps
  transform.yield
}
