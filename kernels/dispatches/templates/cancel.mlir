// Transpositions cancel with their inverses, and equal ones merge.
%cancelled = transform.apply_registered_pass "canonicalize" to %inlined
    : (!transform.any_op) -> !transform.any_op
transform.apply_cse to %cancelled : !transform.any_op
