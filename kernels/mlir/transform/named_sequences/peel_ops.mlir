// The last iteration of a loop apart: the op in the others, of static size, and the op in it.
transform.named_sequence @peel_ops(%loop: !transform.any_op {transform.consumed})
    -> (!transform.any_op, !transform.any_op) {
  %for = transform.cast %loop : !transform.any_op to !transform.op<"scf.for">
  %whole, %last = transform.loop.peel %for
      : (!transform.op<"scf.for">) -> (!transform.any_op, !transform.any_op)
  %tiles = transform.structured.match interface{LinalgOp} in %whole
      : (!transform.any_op) -> !transform.any_op
  %rest = transform.structured.match interface{LinalgOp} in %last
      : (!transform.any_op) -> !transform.any_op
  transform.yield %tiles, %rest : !transform.any_op, !transform.any_op
}
