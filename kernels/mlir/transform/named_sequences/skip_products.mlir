// Padding is skipped, not multiplied: products with its zeros are zero, whatever the factor.
transform.named_sequence @skip_products(%zeros: !transform.any_op {transform.readonly}) {
  %users = transform.get_consumers_of_result %zeros[0]
      : (!transform.any_op) -> !transform.any_op
  transform.foreach %users : !transform.any_op {
  ^bb0(%user: !transform.any_op):
    %both = transform.structured.match ops{["arith.mulf", "arith.addf"]} in %user
        : (!transform.any_op) -> !transform.any_op
    %skip = transform.param.constant #arith.fastmath<nnan,nsz> -> !transform.any_param
    transform.annotate %both "fastmath" = %skip : !transform.any_op, !transform.any_param
  }
  transform.yield
}
