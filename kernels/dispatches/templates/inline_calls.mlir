%inlined = transform.apply_registered_pass "inline" to %module
    : (!transform.any_op) -> !transform.any_op
