// $title
transform.named_sequence @$name(%op: !transform.any_op {transform.consumed}) {
  %packed = transform.structured.pack %op packed_sizes = $sizes
      : (!transform.any_op) -> !transform.any_op
  $orders
  transform.yield
}
