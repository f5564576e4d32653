transform.named_sequence @$name(%ins: !transform.any_value {transform.readonly},
    %out: !transform.any_value {transform.readonly}) {
  %root = transform.get_defining_op %out : (!transform.any_value) -> !transform.any_op
  %module = transform.util.get_nearest_symbol_table %root
      : (!transform.any_op) -> !transform.any_op
  $imports
  transform.util.cast_and_call %call(%ins) -> %out after %root$conversion
      : (!transform.any_op, !transform.any_value, !transform.any_value, !transform.any_op)
      -> !transform.any_op
  transform.yield
}
