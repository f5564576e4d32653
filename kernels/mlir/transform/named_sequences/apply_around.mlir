transform.named_sequence @apply_around(
    %op: !transform.any_op {transform.readonly},
    %config: !transform.any_param {transform.readonly},
    %name: !transform.any_param {transform.readonly},
    %fill: !transform.any_op {transform.readonly},
    %sizes: !transform.any_param {transform.readonly}) {
  transform.annotate %op "compilation_info" = %config : !transform.any_op, !transform.any_param
  transform.annotate %op "$mark" = %name : !transform.any_op, !transform.any_param
  transform.annotate %fill "lowering_config" = %sizes : !transform.any_op, !transform.any_param
  %users = transform.get_consumers_of_result %op[0] : (!transform.any_op) -> !transform.any_op
  transform.annotate %users "lowering_config" = %sizes : !transform.any_op, !transform.any_param
  transform.yield
}
