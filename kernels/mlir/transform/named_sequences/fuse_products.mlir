// Rows that came one by one multiply and add apart: allow that to be one operation.
transform.named_sequence @fuse_products(%func: !transform.any_op {transform.readonly}) {
  %both = transform.structured.match ops{["arith.mulf", "arith.addf"]}
      attributes{fastmath = #arith.fastmath<none>} in %func
      : (!transform.any_op) -> !transform.any_op
  %contract = transform.param.constant #arith.fastmath<contract> -> !transform.any_param
  transform.annotate %both "fastmath" = %contract : !transform.any_op, !transform.any_param
  transform.yield
}
