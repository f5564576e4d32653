// A convolution and a perceptron's layer, as StableHLO spells them. Weights are constants.
func.func @convolution(%image: tensor<1x56x56x64xf32>, %bias: tensor<128xf32>)
    -> tensor<1x28x28x128xf32> {
  %filter = stablehlo.constant dense<0.01> : tensor<3x3x64x128xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<1x28x28x128xf32>
  %sums = stablehlo.convolution(%image, %filter)
      dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {stride = [2, 2], pad = [[1, 1], [1, 1]]}
      {feature_group_count = 1 : i64, batch_group_count = 1 : i64}
      : (tensor<1x56x56x64xf32>, tensor<3x3x64x128xf32>) -> tensor<1x28x28x128xf32>
  %wide = stablehlo.broadcast_in_dim %bias, dims = [3] : (tensor<128xf32>) -> tensor<1x28x28x128xf32>
  %biased = stablehlo.add %sums, %wide : tensor<1x28x28x128xf32>
  %cut = stablehlo.maximum %biased, %zero : tensor<1x28x28x128xf32>
  return %cut : tensor<1x28x28x128xf32>
}

func.func @layer(%x: tensor<128x768xf32>, %bias: tensor<3072xf32>) -> tensor<128x3072xf32> {
  %weights = stablehlo.constant dense<0.01> : tensor<768x3072xf32>
  %sums = stablehlo.dot_general %x, %weights, contracting_dims = [1] x [0]
      : (tensor<128x768xf32>, tensor<768x3072xf32>) -> tensor<128x3072xf32>
  %wide = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<3072xf32>) -> tensor<128x3072xf32>
  %biased = stablehlo.add %sums, %wide : tensor<128x3072xf32>
  return %biased : tensor<128x3072xf32>
}

func.func @narrow(%x: tensor<128x768xi8>, %y: tensor<768x512xi8>) -> tensor<128x512xi8> {
  %sums = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
      : (tensor<128x768xi8>, tensor<768x512xi8>) -> tensor<128x512xi8>
  return %sums : tensor<128x512xi8>
}
