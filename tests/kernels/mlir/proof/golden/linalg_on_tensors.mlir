module {
  func.func @matmul(%arg0: tensor<16x1024xf32>, %arg1: tensor<1024x33xf32>, %arg2: tensor<16x33xf32>) -> tensor<16x33xf32> {
    %c0 = arith.constant 0 : index
    %c0_0 = arith.constant 0 : index
    %c0_1 = arith.constant 0 : index
    %c16 = arith.constant 16 : index
    %c33 = arith.constant 33 : index
    %c1024 = arith.constant 1024 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %0 = scf.for %arg3 = %c0 to %c16 step %c2 iter_args(%arg4 = %arg2) -> (tensor<16x33xf32>) {
      %1 = scf.for %arg5 = %c0_0 to %c33 step %c3 iter_args(%arg6 = %arg4) -> (tensor<16x33xf32>) {
        %2 = scf.for %arg7 = %c0_1 to %c1024 step %c4 iter_args(%arg8 = %arg6) -> (tensor<16x33xf32>) {
          %extracted_slice = tensor.extract_slice %arg0[%arg3, %arg7] [2, 4] [1, 1] : tensor<16x1024xf32> to tensor<2x4xf32>
          %extracted_slice_2 = tensor.extract_slice %arg1[%arg7, %arg5] [4, 3] [1, 1] : tensor<1024x33xf32> to tensor<4x3xf32>
          %extracted_slice_3 = tensor.extract_slice %arg8[%arg3, %arg5] [2, 3] [1, 1] : tensor<16x33xf32> to tensor<2x3xf32>
          %3 = linalg.matmul ins(%extracted_slice, %extracted_slice_2 : tensor<2x4xf32>, tensor<4x3xf32>) outs(%extracted_slice_3 : tensor<2x3xf32>) -> tensor<2x3xf32>
          %inserted_slice = tensor.insert_slice %3 into %arg8[%arg3, %arg5] [2, 3] [1, 1] : tensor<2x3xf32> into tensor<16x33xf32>
          scf.yield %inserted_slice : tensor<16x33xf32>
        }
        scf.yield %2 : tensor<16x33xf32>
      }
      scf.yield %1 : tensor<16x33xf32>
    }
    return %0 : tensor<16x33xf32>
  }
}
