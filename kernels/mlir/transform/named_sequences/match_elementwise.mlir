// Elementwise ops of $title.
transform.named_sequence @$name(%op: !transform.any_op {transform.readonly})
    -> !transform.any_op {
  transform.match.operation_name %op ["linalg.generic"] : !transform.any_op
  transform.match.structured failures(propagate) %op : !transform.any_op {
  ^bb0(%candidate: !transform.any_op):
    $rank
    "transform.match.structured.body"(%candidate) <{elementwise}> : (!transform.any_op) -> ()
    transform.match.structured.yield
  }
  transform.yield %op : !transform.any_op
}
