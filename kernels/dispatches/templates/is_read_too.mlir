%makers = transform.merge_handles deduplicate $a, $added : !transform.any_op
%one = transform.param.constant 1 : i64 -> !transform.param<i64>
%same = transform.num_associations %makers : (!transform.any_op) -> !transform.param<i64>
transform.match.param.cmpi eq %same, %one : !transform.param<i64>
