// B to panels of $lanes columns; C only changes its shape, to [rows, panels, columns].
transform.named_sequence @pack_panels_$lanes(%op: !transform.any_op {transform.consumed})
    -> (!transform.any_op, !transform.any_op) {
  %packed = transform.structured.pack %op packed_sizes = $packed_sizes
      : (!transform.any_op) -> !transform.any_op
  %plain = transform.get_producer_of_operand %packed[$operand]
      : (!transform.any_op) -> !transform.any_op
  %contraction, %pack, %none = transform.structured.pack_transpose %plain
      with_compute_op(%packed) outer_perm = $outer_perm
      : (!transform.any_op, !transform.any_op)
      -> (!transform.any_op, !transform.any_op, !transform.any_op)
  %c = transform.get_producer_of_operand %contraction[2]
      : (!transform.any_op) -> !transform.op<"linalg.pack">
  %result = transform.get_consumers_of_result %contraction[0]
      : (!transform.any_op) -> !transform.op<"linalg.unpack">
  %b = transform.cast %pack : !transform.any_op to !transform.op<"linalg.pack">
  %b_parts:3 = transform.structured.lower_pack %b : (!transform.op<"linalg.pack">)
      -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
          !transform.op<"linalg.transpose">)
  %c_parts:3 = transform.structured.lower_pack %c : (!transform.op<"linalg.pack">)
      -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
          !transform.op<"linalg.transpose">)
  %r_parts:5 = transform.structured.lower_unpack %result : (!transform.op<"linalg.unpack">)
      -> (!transform.op<"tensor.empty">, !transform.op<"linalg.transpose">,
          !transform.op<"tensor.collapse_shape">, !transform.op<"tensor.extract_slice">,
          !transform.op<"linalg.copy">)
  // The copy of C onto itself: as a generic that yields its input it folds away.
  %identity = transform.structured.generalize %r_parts#4
      : (!transform.op<"linalg.copy">) -> !transform.any_op
  %panels = transform.cast %b_parts#2 : !transform.op<"linalg.transpose"> to !transform.any_op
  transform.yield %contraction, %panels : !transform.any_op, !transform.any_op
}
