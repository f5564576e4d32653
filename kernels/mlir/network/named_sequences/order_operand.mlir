%pack_$index = transform.get_producer_of_operand $op[$index] : (!transform.any_op) -> !transform.any_op
%ordered_$index, %again_$index, %none_$index = transform.structured.pack_transpose %pack_$index
    with_compute_op($op) $order
    : (!transform.any_op, !transform.any_op)
    -> (!transform.any_op, !transform.any_op, !transform.any_op)
