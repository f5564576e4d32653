%module = transform.apply_registered_pass "inline" with options = {"default-pipeline" = ""}
    to %given : (!transform.any_op) -> !transform.any_op
