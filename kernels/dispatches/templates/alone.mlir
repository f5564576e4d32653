// The op has one user, in a function that returns only results of ops.
transform.named_sequence @tilewise_alone(%op: !transform.any_op {transform.readonly}) {
  %one = transform.param.constant 1 : i64 -> !transform.param<i64>
  %users = transform.get_consumers_of_result %op[0] : (!transform.any_op) -> !transform.any_op
  %used = transform.num_associations %users : (!transform.any_op) -> !transform.param<i64>
  transform.match.param.cmpi eq %used, %one : !transform.param<i64>
  %around = transform.get_parent_op %op : (!transform.any_op) -> !transform.any_op
  %return = transform.structured.match ops{["util.return"]} in %around
      : (!transform.any_op) -> !transform.any_op
  %values = transform.get_operand %return[all] : (!transform.any_op) -> !transform.any_value
  %made = transform.get_defining_op %values : (!transform.any_value) -> !transform.any_op
  transform.yield
}
