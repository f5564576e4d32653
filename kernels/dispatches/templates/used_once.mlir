transform.match.structured failures(propagate) $op : !transform.any_op {
^bb0(%op: !transform.any_op):
  %user = "transform.match.structured.result"(%op) <{position = 0 : i64, single}>
      : (!transform.any_op) -> !transform.any_op
  transform.match.structured.yield
}
