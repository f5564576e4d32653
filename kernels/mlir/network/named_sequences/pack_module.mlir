transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
  %func = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
  $lines
  transform.yield
}
