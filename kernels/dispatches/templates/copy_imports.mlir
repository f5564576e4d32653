%imports$number = transform.structured.match ops{["hal.tensor.import"]}
    filter_result_type = $type in %module : (!transform.any_op) -> !transform.any_op
transform.foreach %imports$number : !transform.any_op {
^bb0(%import: !transform.any_op):
  %value = transform.get_result %import[0] : (!transform.any_op) -> !transform.any_value
  %table = transform.util.get_nearest_symbol_table %import
      : (!transform.any_op) -> !transform.any_op
  %copy = transform.util.import_symbol @tilewise_copy$number into %table if undefined
      : (!transform.any_op) -> !transform.any_op
  transform.util.cast_and_call %copy(%value) -> %value after %import
      : (!transform.any_op, !transform.any_value, !transform.any_value, !transform.any_op)
      -> !transform.any_op
}
