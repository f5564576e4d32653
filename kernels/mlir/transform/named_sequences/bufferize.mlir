// Tensors to buffers: $what
transform.named_sequence @bufferize(%root: !transform.any_op {transform.consumed})
    -> !transform.any_op {
  transform.bufferization.eliminate_empty_tensors %root : !transform.any_op
  %module = transform.bufferization.one_shot_bufferize layout{IdentityLayoutMap} %root
      <{bufferize_function_boundaries = true}> : (!transform.any_op) -> !transform.any_op
  %func = transform.structured.match ops{["func.func"]} in %module
      : (!transform.any_op) -> !transform.any_op
  $fold_aliases
  transform.yield %func : !transform.any_op
}
