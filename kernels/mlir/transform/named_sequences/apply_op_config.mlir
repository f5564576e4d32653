transform.named_sequence @apply_op_config(
    %op: !transform.any_op {transform.readonly},
    %config: !transform.any_param {transform.readonly},
    %name: !transform.any_param {transform.readonly}) {
  transform.annotate %op "compilation_info" = %config : !transform.any_op, !transform.any_param
  transform.annotate %op "$mark" = %name : !transform.any_op, !transform.any_param
  transform.yield
}
