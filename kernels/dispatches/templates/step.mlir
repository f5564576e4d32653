%functions$step = transform.structured.match ops{["util.func"]} in %$module
    : (!transform.any_op) -> !transform.any_op
transform.foreach %functions$step : !transform.any_op {
^bb0(%function: !transform.any_op):
  transform.foreach_match in %function
      $pairs
      : (!transform.any_op) -> !transform.any_op
}
transform.apply_dce to %$module : !transform.any_op
