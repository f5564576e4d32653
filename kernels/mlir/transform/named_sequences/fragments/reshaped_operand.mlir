%$name = transform.get_producer_of_operand %packed[$index]
    : (!transform.any_op) -> !transform.op<"linalg.pack">
%${name}_parts:3 = transform.structured.lower_pack %$name : (!transform.op<"linalg.pack">)
    -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
        !transform.op<"linalg.transpose">)
