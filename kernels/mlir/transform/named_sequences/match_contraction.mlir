// Contractions $title.
transform.named_sequence @$name(%op: !transform.any_op {transform.readonly})
    -> !transform.any_op {
  transform.match.structured failures(propagate) %op : !transform.any_op {
  ^bb0(%candidate: !transform.any_op):
    $dims
    "transform.match.structured.body"(%candidate) <{contraction = [$body]}>
        : (!transform.any_op) -> ()
    transform.match.structured.yield
  }
  transform.yield %op : !transform.any_op
}
