// Taps that the filter does not have are skipped: 0 times a pixel is 0, whatever the pixel.
transform.named_sequence @skip_taps(%zeros: !transform.any_op {transform.readonly}) {
  %views = transform.get_consumers_of_result %zeros[0]
      : (!transform.any_op) -> !transform.any_op
  transform.foreach %views : !transform.any_op {
  ^bb0(%view: !transform.any_op):
    %users = transform.get_consumers_of_result %view[0]
        : (!transform.any_op) -> !transform.any_op
    transform.foreach %users : !transform.any_op {
    ^bb0(%user: !transform.any_op):
      %product = transform.structured.match ops{["arith.mulf"]} in %user
          : (!transform.any_op) -> !transform.any_op
      %nothing = transform.param.constant #arith.fastmath<nnan,nsz,contract>
          -> !transform.any_param
      transform.annotate %product "fastmath" = %nothing : !transform.any_op, !transform.any_param
      %sum = transform.structured.match ops{["arith.addf"]} in %user
          : (!transform.any_op) -> !transform.any_op
      %same = transform.param.constant #arith.fastmath<nsz,contract> -> !transform.any_param
      transform.annotate %sum "fastmath" = %same : !transform.any_op, !transform.any_param
    }
  }
  transform.yield
}
