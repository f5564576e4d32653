// Packs of whole operands are transposes; as generics, those that move nothing fold away.
transform.named_sequence @lower_packs(%func: !transform.any_op {transform.readonly}) {
  %packs = transform.structured.match ops{["linalg.pack"]} in %func
      : (!transform.any_op) -> !transform.op<"linalg.pack">
  %pads, %expanded, %packed = "transform.structured.lower_pack"(%packs)
      <{lowerPadLikeWithInsertSlice = false}> : (!transform.op<"linalg.pack">)
      -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
          !transform.op<"linalg.transpose">)
  %unpacks = transform.structured.match ops{["linalg.unpack"]} in %func
      : (!transform.any_op) -> !transform.op<"linalg.unpack">
  %parts:5 = "transform.structured.lower_unpack"(%unpacks)
      <{lowerUnpadLikeWithExtractSlice = false}> : (!transform.op<"linalg.unpack">)
      -> (!transform.op<"tensor.empty">, !transform.op<"linalg.transpose">,
          !transform.op<"tensor.collapse_shape">, !transform.op<"tensor.extract_slice">,
          !transform.op<"linalg.copy">)
  $result
  %transposes = transform.structured.match ops{["linalg.transpose"]} in %func
      : (!transform.any_op) -> !transform.any_op
  %moves = transform.structured.generalize %transposes
      : (!transform.any_op) -> !transform.any_op
  transform.yield
}
