func.func @dense(%a: tensor<64x96xf32>, %b: tensor<96x128xf32>, %bias: tensor<128xf32>) -> tensor<64x128xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<64x96xf32>, tensor<96x128xf32>) -> tensor<64x128xf32>
  %1 = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<128xf32>) -> tensor<64x128xf32>
  %2 = stablehlo.add %0, %1 : tensor<64x128xf32>
  %z = stablehlo.constant dense<0.0> : tensor<64x128xf32>
  %3 = stablehlo.maximum %2, %z : tensor<64x128xf32>
  return %3 : tensor<64x128xf32>
}
func.func @bmm(%a: tensor<12x64x96xf32>, %b: tensor<12x128x96xf32>) -> tensor<12x64x128xf32> {
  %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<12x64x96xf32>, tensor<12x128x96xf32>) -> tensor<12x64x128xf32>
  return %0 : tensor<12x64x128xf32>
}
func.func @tb(%a: tensor<64x96xf32>, %b: tensor<128x96xf32>) -> tensor<64x128xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<64x96xf32>, tensor<128x96xf32>) -> tensor<64x128xf32>
  return %0 : tensor<64x128xf32>
}
func.func @i8(%a: tensor<64x96xi8>, %b: tensor<96x128xi8>) -> tensor<64x128xi32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<64x96xi8>, tensor<96x128xi8>) -> tensor<64x128xi32>
  return %0 : tensor<64x128xi32>
}
func.func @bf(%a: tensor<64x96xbf16>, %b: tensor<96x128xbf16>) -> tensor<64x128xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<64x96xbf16>, tensor<96x128xbf16>) -> tensor<64x128xf32>
  return %0 : tensor<64x128xf32>
}
func.func @conv(%a: tensor<1x14x14x64xf32>, %b: tensor<3x3x64x96xf32>, %bias: tensor<96xf32>) -> tensor<1x14x14x96xf32> {
  %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x14x14x64xf32>, tensor<3x3x64x96xf32>) -> tensor<1x14x14x96xf32>
  %1 = stablehlo.broadcast_in_dim %bias, dims = [3] : (tensor<96xf32>) -> tensor<1x14x14x96xf32>
  %2 = stablehlo.add %0, %1 : tensor<1x14x14x96xf32>
  %z = stablehlo.constant dense<0.0> : tensor<1x14x14x96xf32>
  %3 = stablehlo.maximum %2, %z : tensor<1x14x14x96xf32>
  return %3 : tensor<1x14x14x96xf32>
}
func.func @nchw(%a: tensor<1x64x14x14xf32>, %b: tensor<96x64x3x3xf32>) -> tensor<1x96x7x7xf32> {
  %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [2, 2], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x64x14x14xf32>, tensor<96x64x3x3xf32>) -> tensor<1x96x7x7xf32>
  return %0 : tensor<1x96x7x7xf32>
}
func.func @dw(%a: tensor<1x14x14x64xf32>, %b: tensor<3x3x1x64xf32>) -> tensor<1x14x14x64xf32> {
  %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 64 : i64} : (tensor<1x14x14x64xf32>, tensor<3x3x1x64xf32>) -> tensor<1x14x14x64xf32>
  return %0 : tensor<1x14x14x64xf32>
}
func.func @dense3(%a: tensor<1x64x96xf32>, %bias: tensor<128xf32>) -> tensor<1x64x128xf32> {
  %b = stablehlo.constant dense<0.5> : tensor<96x128xf32>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [2] x [0] : (tensor<1x64x96xf32>, tensor<96x128xf32>) -> tensor<1x64x128xf32>
  %1 = stablehlo.broadcast_in_dim %bias, dims = [2] : (tensor<128xf32>) -> tensor<1x64x128xf32>
  %2 = stablehlo.add %0, %1 : tensor<1x64x128xf32>
  return %2 : tensor<1x64x128xf32>
}
func.func @clamp(%a: tensor<64x96xf32>, %b: tensor<96x128xf32>, %bias: tensor<128xf32>) -> tensor<64x128xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<64x96xf32>, tensor<96x128xf32>) -> tensor<64x128xf32>
  %1 = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<128xf32>) -> tensor<64x128xf32>
  %2 = stablehlo.add %0, %1 : tensor<64x128xf32>
  %lo = stablehlo.constant dense<0.0> : tensor<f32>
  %hi = stablehlo.constant dense<6.0> : tensor<f32>
  %3 = stablehlo.clamp %lo, %2, %hi : (tensor<f32>, tensor<64x128xf32>, tensor<f32>) -> tensor<64x128xf32>
  return %3 : tensor<64x128xf32>
}
func.func @relu6(%a: tensor<1x14x14x64xf32>, %b: tensor<3x3x1x64xf32>, %bias: tensor<64xf32>) -> tensor<1x14x14x64xf32> {
  %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 64 : i64} : (tensor<1x14x14x64xf32>, tensor<3x3x1x64xf32>) -> tensor<1x14x14x64xf32>
  %1 = stablehlo.broadcast_in_dim %bias, dims = [3] : (tensor<64xf32>) -> tensor<1x14x14x64xf32>
  %2 = stablehlo.add %0, %1 : tensor<1x14x14x64xf32>
  %z = stablehlo.constant dense<0.0> : tensor<1x14x14x64xf32>
  %six = stablehlo.constant dense<6.0> : tensor<1x14x14x64xf32>
  %3 = stablehlo.maximum %2, %z : tensor<1x14x14x64xf32>
  %4 = stablehlo.minimum %3, %six : tensor<1x14x14x64xf32>
  return %4 : tensor<1x14x14x64xf32>
}
