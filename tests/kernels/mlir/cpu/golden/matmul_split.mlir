// problem:  matmul:m=64,n=3,k=100,dtype=f32,bias
// schedule: e96e336f43879c21
//
// pack B to panels along k 1x1x3x100
// for n step 3:  # micro, 1 trips
//   for m step 4:  # micro, 16 trips
//     C += A * B  # 4x3 over 100 in 16 partial sums, unrolled 2
//     store C (bias)
//
// pack operand=B
// register rows=4 cols=3 outer=cols
// split dim=k lanes=16
// unroll factor=2
//
module attributes {transform.with_named_sequence} {

  func.func @kernel(%A: tensor<64x100xf32> {bufferization.writable = false}, %B: tensor<100x3xf32> {bufferization.writable = false}, %bias: tensor<3xf32> {bufferization.writable = false}, %C: tensor<64x3xf32> {bufferization.writable = true}) -> tensor<64x3xf32> {
    %zero = arith.constant 0.0 : f32
    %init = linalg.fill ins(%zero : f32) outs(%C : tensor<64x3xf32>) -> tensor<64x3xf32>
    %product = linalg.matmul ins(%A, %B : tensor<64x100xf32>, tensor<100x3xf32>) outs(%init : tensor<64x3xf32>) -> tensor<64x3xf32>
    %finished = linalg.generic {indexing_maps = [affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} ins(%bias : tensor<3xf32>) outs(%product : tensor<64x3xf32>) {
    ^bb0(%b: f32, %p: f32):
      %biased = arith.addf %p, %b : f32
      linalg.yield %biased : f32
    } -> tensor<64x3xf32>
    return %finished : tensor<64x3xf32>
  }

  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %func = transform.structured.match ops{["func.func"]} in %root : (!transform.any_op) -> !transform.any_op
    %contraction = transform.structured.match ops{["linalg.matmul"]} in %root : (!transform.any_op) -> !transform.any_op
    %epilogue = transform.get_consumers_of_result %contraction[0] : (!transform.any_op) -> !transform.any_op
    // pack B to panels along k
    %transposed = transform.structured.transpose_matmul %contraction <rhs> : (!transform.any_op) -> !transform.any_op
    %column_copy = transform.get_producer_of_operand %transposed[1] : (!transform.any_op) -> !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for n step 3
    // for m step 4
    %m_block, %m_loop = transform.structured.tile_using_forall %epilogue tile_sizes [4] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %m_inner, %around = transform.structured.fuse_into_containing_op %transposed into %m_loop : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    %fill = transform.structured.match ops{["linalg.fill"]} in %func : (!transform.any_op) -> !transform.any_op
    %fill_tile, %around_1 = transform.structured.fuse_into_containing_op %fill into %around : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // C += A * B
    %tile = transform.structured.generalize %m_inner : (!transform.any_op) -> !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.include @drop_unit_dims failures(propagate) (%func) : (!transform.any_op) -> ()
    %kernels = transform.collect_matching @contraction_xxk in %func : (!transform.any_op) -> !transform.any_op
    %no_sums, %partial_sums, %total, %loop = transform.structured.tile_reduction_using_for %kernels by tile_sizes = [0, 0, 16] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    transform.structured.vectorize %no_sums : !transform.any_op
    transform.structured.vectorize %total : !transform.any_op
    transform.annotate %loop "accumulates" : !transform.any_op
    transform.annotate %loop "innermost" : !transform.any_op
    transform.foreach %loop : !transform.any_op {
    ^bb0(%each: !transform.any_op):
      transform.include @peel failures(suppress) (%each) : (!transform.any_op) -> ()
    }
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.include @drop_unit_dims failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.include @add_lanes failures(propagate) (%func) : (!transform.any_op) -> ()
    // the copies of the packs
    %copies = transform.merge_handles deduplicate %column_copy : !transform.any_op
    %step, %loop_1, %loop_2 = transform.structured.tile_using_for %copies tile_sizes [1, 100] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.structured.vectorize %step : !transform.any_op
    %zeros = transform.structured.match ops{["linalg.fill"]} in %func : (!transform.any_op) -> !transform.any_op
    transform.structured.vectorize %zeros : !transform.any_op
    %kernels_1 = transform.collect_matching @contraction in %func : (!transform.any_op) -> !transform.any_op
    transform.structured.vectorize %kernels_1 : !transform.any_op
    %kernels_2 = transform.collect_matching @epilogue_4_3 in %func : (!transform.any_op) -> !transform.any_op
    transform.structured.vectorize %kernels_2 : !transform.any_op
    transform.include @hoist_accumulators failures(propagate) (%func) : (!transform.any_op) -> ()
    // unroll factor=2
    %innermost = transform.structured.match ops{["scf.for"]} attributes{innermost} in %func : (!transform.any_op) -> !transform.any_op
    transform.loop.unroll %innermost factor = 2 : !transform.any_op
    // buffers, and vectors that the machine has
    %buffers = transform.include @bufferize failures(propagate) (%root) : (!transform.any_op) -> !transform.any_op
    transform.include @lower_vectors failures(propagate) (%buffers) : (!transform.any_op) -> ()
    transform.include @fuse_products failures(propagate) (%buffers) : (!transform.any_op) -> ()
    transform.yield
  }

  // Static shapes after tiling: fold bounds, drop single-trip loops.
  transform.named_sequence @cleanup(%func: !transform.any_op {transform.readonly}) {
    transform.apply_patterns to %func {
      transform.apply_patterns.linalg.tiling_canonicalization
      transform.apply_patterns.scf.for_loop_canonicalization
      transform.apply_patterns.canonicalization
    } : !transform.any_op
    transform.apply_cse to %func : !transform.any_op
    transform.yield
  }

  // A micro-tile is a plain (rows, depth, cols) contraction once dims of extent 1 are gone.
  transform.named_sequence @drop_unit_dims(%func: !transform.any_op {transform.readonly}) {
    transform.apply_patterns to %func {
      transform.apply_patterns.linalg.fold_unit_extent_dims_via_slices
      transform.apply_patterns.linalg.swap_extract_slice_with_fill
    } : !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.yield
  }

  // Contractions over x x k (k is a reduction).
  transform.named_sequence @contraction_xxk(%op: !transform.any_op {transform.readonly})
      -> !transform.any_op {
    transform.match.structured failures(propagate) %op : !transform.any_op {
    ^bb0(%candidate: !transform.any_op):
      %rank = transform.match.structured.rank %candidate
          : (!transform.any_op) -> !transform.param<i64>
      %wanted = transform.param.constant 3 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %rank, %wanted : !transform.param<i64>
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 0>, parallel}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 1>, parallel}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 2>, reduction}> : (!transform.any_op) -> ()
      "transform.match.structured.body"(%candidate) <{contraction = ["arith.mulf", "arith.addf"]}>
          : (!transform.any_op) -> ()
      transform.match.structured.yield
    }
    transform.yield %op : !transform.any_op
  }

  // Contractions of any dims.
  transform.named_sequence @contraction(%op: !transform.any_op {transform.readonly})
      -> !transform.any_op {
    transform.match.structured failures(propagate) %op : !transform.any_op {
    ^bb0(%candidate: !transform.any_op):
      "transform.match.structured.body"(%candidate) <{contraction = ["arith.mulf", "arith.addf"]}>
          : (!transform.any_op) -> ()
      transform.match.structured.yield
    }
    transform.yield %op : !transform.any_op
  }

  // Epilogues of 4 x 3: elementwise, in place.
  transform.named_sequence @epilogue_4_3(%op: !transform.any_op {transform.readonly})
      -> !transform.any_op {
    transform.match.operation_name %op ["linalg.generic"] : !transform.any_op
    transform.match.structured failures(propagate) %op : !transform.any_op {
    ^bb0(%candidate: !transform.any_op):
      %rank = transform.match.structured.rank %candidate
          : (!transform.any_op) -> !transform.param<i64>
      %wanted_rank = transform.param.constant 2 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %rank, %wanted_rank : !transform.param<i64>
      %num_inputs = transform.match.structured.num_inputs %candidate
          : (!transform.any_op) -> !transform.param<i64>
      %wanted_num_inputs = transform.param.constant 1 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %num_inputs, %wanted_num_inputs : !transform.param<i64>
      %dim0 = "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 0>}>
          : (!transform.any_op) -> !transform.param<i64>
      %size0 = transform.param.constant 4 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %dim0, %size0 : !transform.param<i64>
      %dim1 = "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 1>}>
          : (!transform.any_op) -> !transform.param<i64>
      %size1 = transform.param.constant 3 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %dim1, %size1 : !transform.param<i64>
      "transform.match.structured.body"(%candidate) <{elementwise}> : (!transform.any_op) -> ()
      transform.match.structured.yield
    }
    transform.yield %op : !transform.any_op
  }

  // The last iteration of a loop apart, where it is shorter than the others.
  transform.named_sequence @peel(%loop: !transform.any_op {transform.readonly}) {
    %for = transform.cast %loop : !transform.any_op to !transform.op<"scf.for">
    %whole, %last = transform.loop.peel %for
        : (!transform.op<"scf.for">) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }

  // The partial sums of an element to one, in any order.
  transform.named_sequence @add_lanes(%func: !transform.any_op {transform.readonly}) {
    transform.apply_patterns to %func {
      transform.apply_patterns.vector.reorder_multi_reduction_dims
          lowering_strategy = "innerreduction"
      transform.apply_patterns.vector.multi_reduction_flattening
          lowering_strategy = "innerreduction"
      transform.apply_patterns.vector.multi_reduction_unrolling
          lowering_strategy = "innerreduction"
    } : !transform.any_op
    %sums = transform.structured.match ops{["vector.reduction"]} in %func
        : (!transform.any_op) -> !transform.any_op
    %reassoc = transform.param.constant #arith.fastmath<reassoc> -> !transform.any_param
    transform.annotate %sums "fastmath" = %reassoc : !transform.any_op, !transform.any_param
    transform.yield
  }

  // Accumulators into registers: their loads and stores leave the reduction loops.
  transform.named_sequence @hoist_accumulators(%func: !transform.any_op {transform.readonly}) {
    // Before canonicalisation, which takes a reduction of extent 1 for no reduction.
    transform.apply_patterns to %func {
      transform.apply_patterns.tensor.fold_tensor_subset_ops_into_vector_transfers
      transform.apply_patterns.vector.reduction_to_contract
      transform.apply_patterns.vector.transfer_permutation_patterns
    } : !transform.any_op
    transform.apply_patterns to %func {
      transform.apply_patterns.linalg.tiling_canonicalization
      transform.apply_patterns.canonicalization
      transform.apply_patterns.tensor.fold_tensor_subset_ops_into_vector_transfers
      transform.apply_patterns.vector.transfer_permutation_patterns
    } : !transform.any_op
    transform.apply_cse to %func : !transform.any_op
    %loops = transform.structured.match ops{["scf.for"]} attributes{accumulates} in %func
        : (!transform.any_op) -> !transform.any_op
    transform.apply_licm to %loops : !transform.any_op
    transform.foreach %loops : !transform.any_op {
    ^bb0(%loop: !transform.any_op):
      transform.loop.hoist_loop_invariant_subsets %loop : !transform.any_op
    }
    transform.apply_patterns to %func {
      transform.apply_patterns.canonicalization
      transform.apply_patterns.tensor.fold_tensor_subset_ops_into_vector_transfers
    } : !transform.any_op
    transform.apply_cse to %func : !transform.any_op
    transform.yield
  }

  // Tensors to buffers: C in place, one scratch buffer per pack.
  transform.named_sequence @bufferize(%root: !transform.any_op {transform.consumed})
      -> !transform.any_op {
    transform.bufferization.eliminate_empty_tensors %root : !transform.any_op
    %module = transform.bufferization.one_shot_bufferize layout{IdentityLayoutMap} %root
        <{bufferize_function_boundaries = true}> : (!transform.any_op) -> !transform.any_op
    %func = transform.structured.match ops{["func.func"]} in %module
        : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %func {
      transform.apply_patterns.canonicalization
      transform.apply_patterns.memref.fold_memref_alias_ops
    } : !transform.any_op
    transform.apply_cse to %func : !transform.any_op
    transform.apply_patterns to %func {
      transform.apply_patterns.canonicalization
    } : !transform.any_op
    transform.yield %func : !transform.any_op
  }

  // Contractions to outer products, that is to fused multiply-adds; then rank-1 accesses.
  transform.named_sequence @lower_vectors(%func: !transform.any_op {transform.readonly}) {
    transform.apply_patterns to %func {
      transform.apply_patterns.vector.lower_contraction lowering_strategy = "outerproduct"
      transform.apply_patterns.vector.lower_outerproduct
    } : !transform.any_op
    transform.apply_patterns to %func {
      transform.apply_patterns.vector.lower_transfer max_transfer_rank = 1
      transform.apply_patterns.vector.lower_transpose lowering_strategy = "eltwise"
      transform.apply_patterns.vector.lower_shape_cast
    } : !transform.any_op
    transform.apply_patterns to %func {
      transform.apply_patterns.canonicalization
    } : !transform.any_op
    transform.yield
  }

  // Rows that came one by one multiply and add apart: allow that to be one operation.
  transform.named_sequence @fuse_products(%func: !transform.any_op {transform.readonly}) {
    %both = transform.structured.match ops{["arith.mulf", "arith.addf"]}
        attributes{fastmath = #arith.fastmath<none>} in %func
        : (!transform.any_op) -> !transform.any_op
    %contract = transform.param.constant #arith.fastmath<contract> -> !transform.any_param
    transform.annotate %both "fastmath" = %contract : !transform.any_op, !transform.any_param
    transform.yield
  }
}
