transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
  %func = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
  $lines
  %buffers = transform.include @bufferize failures(propagate) (%root)
      : (!transform.any_op) -> !transform.any_op
  transform.include @lower_vectors failures(propagate) (%buffers) : (!transform.any_op) -> ()
  $fused
  transform.yield
}
