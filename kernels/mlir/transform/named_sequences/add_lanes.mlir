// The partial sums of an element to one, in any order.
transform.named_sequence @add_lanes(%func: !transform.any_op {transform.readonly}) {
  transform.apply_patterns to %func {
    transform.apply_patterns.vector.reorder_multi_reduction_dims
        lowering_strategy = "innerreduction"
    transform.apply_patterns.vector.multi_reduction_flattening
        lowering_strategy = "innerreduction"
    transform.apply_patterns.vector.multi_reduction_unrolling
        lowering_strategy = "innerreduction"
  } : !transform.any_op
  %sums = transform.structured.match ops{["vector.reduction"]} in %func
      : (!transform.any_op) -> !transform.any_op
  %reassoc = transform.param.constant #arith.fastmath<reassoc> -> !transform.any_param
  transform.annotate %sums "fastmath" = %reassoc : !transform.any_op, !transform.any_param
  transform.yield
}
