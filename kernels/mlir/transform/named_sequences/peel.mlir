// The last iteration of a loop apart, where it is shorter than the others.
transform.named_sequence @peel(%loop: !transform.any_op {transform.readonly}) {
  %for = transform.cast %loop : !transform.any_op to !transform.op<"scf.for">
  %whole, %last = transform.loop.peel %for
      : (!transform.op<"scf.for">) -> (!transform.any_op, !transform.any_op)
  transform.yield
}
