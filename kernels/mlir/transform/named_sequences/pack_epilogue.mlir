// The epilogue on C as [rows, panels, columns]; nothing moves.
transform.named_sequence @pack_epilogue_$lanes(%op: !transform.any_op {transform.consumed})
    -> !transform.any_op {
  %packed = transform.structured.pack %op packed_sizes = $packed_sizes
      : (!transform.any_op) -> !transform.any_op
  $reshaped_operands
  %result = transform.get_consumers_of_result %packed[0]
      : (!transform.any_op) -> !transform.op<"linalg.unpack">
  %r_parts:5 = transform.structured.lower_unpack %result : (!transform.op<"linalg.unpack">)
      -> (!transform.op<"tensor.empty">, !transform.op<"linalg.transpose">,
          !transform.op<"tensor.collapse_shape">, !transform.op<"tensor.extract_slice">,
          !transform.op<"linalg.copy">)
  %identity = transform.structured.generalize %r_parts#4
      : (!transform.op<"linalg.copy">) -> !transform.any_op
  transform.yield %packed : !transform.any_op
}
