// The op runs once: an accumulating kernel must not run in a loop.
transform.named_sequence @tilewise_once(%op: !transform.any_op {transform.readonly}) {
  %none = transform.param.constant 0 : i64 -> !transform.param<i64>
  %around = transform.get_parent_op %op : (!transform.any_op) -> !transform.any_op
  transform.match.operation_name %around ["util.func"] : !transform.any_op
  %jumps = transform.structured.match ops{["cf.br", "cf.cond_br", "cf.switch"]} in %around
      : (!transform.any_op) -> !transform.any_op
  %found = transform.num_associations %jumps : (!transform.any_op) -> !transform.param<i64>
  transform.match.param.cmpi eq %found, %none : !transform.param<i64>
  transform.yield
}
