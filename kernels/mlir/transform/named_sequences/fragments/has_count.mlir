%$what = transform.match.structured.$what %candidate
    : (!transform.any_op) -> !transform.param<i64>
%$wanted = transform.param.constant $count : i64 -> !transform.param<i64>
transform.match.param.cmpi eq %$what, %$wanted : !transform.param<i64>
