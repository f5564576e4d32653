%dim$index = "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: $index>}>
    : (!transform.any_op) -> !transform.param<i64>
%size$index = transform.param.constant $size : i64 -> !transform.param<i64>
transform.match.param.cmpi eq %dim$index, %size$index : !transform.param<i64>
