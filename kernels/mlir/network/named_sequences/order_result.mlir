%unpack = transform.get_consumers_of_result $op[0] : (!transform.any_op) -> !transform.any_op
%ordered_result, %none_result, %unpack_again = transform.structured.pack_transpose %unpack
    with_compute_op($op) $order
    : (!transform.any_op, !transform.any_op)
    -> (!transform.any_op, !transform.any_op, !transform.any_op)
