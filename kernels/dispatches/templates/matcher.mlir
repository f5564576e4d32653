transform.named_sequence @$name(%root: !transform.any_op {transform.readonly})
    -> (!transform.any_value, !transform.any_value) {
  %ins, %out = transform.iree.match.cast_compatible_dag_from_root %root {
    ^bb0($operands):
      $pattern
  } : (!transform.any_op) -> (!transform.any_value, !transform.any_value)
  $checks
  transform.yield %ins, %out : !transform.any_value, !transform.any_value
}
