"transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: $index>, $kind}> : (!transform.any_op) -> ()
