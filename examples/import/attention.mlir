// The scores of attention as models have them: heads between positions and what is summed.
func.func @scores(%q: tensor<1x48x6x32xf32>, %k: tensor<1x40x6x32xf32>) -> tensor<1x6x48x40xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<1x6x48x40xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x6x48x40xf32>)
      -> tensor<1x6x48x40xf32>
  // d0 to d4: batch, head, position in q, position in k, element that is summed
  %s = linalg.generic {
      indexing_maps = [
        affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d1, d4)>,
        affine_map<(d0, d1, d2, d3, d4) -> (d0, d3, d1, d4)>,
        affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<1x48x6x32xf32>, tensor<1x40x6x32xf32>)
      outs(%start : tensor<1x6x48x40xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %p = arith.mulf %x, %y : f32
    %t = arith.addf %sum, %p : f32
    linalg.yield %t : f32
  } -> tensor<1x6x48x40xf32>
  return %s : tensor<1x6x48x40xf32>
}
