// A function of this project, as its own compiler has it before it is tiled.
func.func @layer(%a: tensor<64x32xf32>, %b: tensor<32x48xf32>) -> tensor<64x48xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x48xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x48xf32>) -> tensor<64x48xf32>
  %product = linalg.matmul ins(%a, %b : tensor<64x32xf32>, tensor<32x48xf32>)
      outs(%init : tensor<64x48xf32>) -> tensor<64x48xf32>
  return %product : tensor<64x48xf32>
}
