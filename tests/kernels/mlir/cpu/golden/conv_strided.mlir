// problem:  conv2d:n=2,h=9,w=11,ci=8,co=19,kh=3,kw=3,stride=2,pad=1,dtype=f32,bias,epilogue=relu
// schedule: 722c9783c9b3f284
//
// for co step 16:  # tile, 2 trips
//   pack B to panels 1x9x8x16
//   for n step 1:  # tile, 2 trips
//     for oh step 3:  # tile, 2 trips
//       pack A to image 7x13x8
//       for co step 16:  # micro, 1 trips
//         for n step 1:  # micro, 1 trips
//           for oh step 1:  # micro, 3 trips
//             for ow step 4:  # micro, 2 trips
//               C += A * B  # 4x16 over 8 x 9 taps, unrolled 2
//               store C (bias, relu)
//
// tile dim=co size=16
// pack operand=B
// tile dim=n size=1
// tile dim=oh size=3
// pack operand=A
// register rows=4 cols=16 outer=cols
// unroll factor=2
//
module attributes {transform.with_named_sequence} {

  func.func @kernel(%A: tensor<2x9x11x8xf32> {bufferization.writable = false}, %B: tensor<3x3x8x19xf32> {bufferization.writable = false}, %bias: tensor<19xf32> {bufferization.writable = false}, %C: tensor<2x5x6x19xf32> {bufferization.writable = true}) -> tensor<2x5x6x19xf32> {
    %zero = arith.constant 0.0 : f32
    %init = linalg.fill ins(%zero : f32) outs(%C : tensor<2x5x6x19xf32>) -> tensor<2x5x6x19xf32>
    %padded = tensor.pad %A low[0, 1, 1, 0] high[0, 1, 1, 0] {
    ^bb0(%i: index, %y: index, %x: index, %c: index):
      tensor.yield %zero : f32
    } : tensor<2x9x11x8xf32> to tensor<2x11x13x8xf32>
    %product = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>} ins(%padded, %B : tensor<2x11x13x8xf32>, tensor<3x3x8x19xf32>) outs(%init : tensor<2x5x6x19xf32>) -> tensor<2x5x6x19xf32>
    %finished = linalg.generic {indexing_maps = [affine_map<(n, oh, ow, co) -> (co)>, affine_map<(n, oh, ow, co) -> (n, oh, ow, co)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%bias : tensor<19xf32>) outs(%product : tensor<2x5x6x19xf32>) {
    ^bb0(%b: f32, %p: f32):
      %biased = arith.addf %p, %b : f32
      %relu = arith.maximumf %biased, %zero : f32
      linalg.yield %relu : f32
    } -> tensor<2x5x6x19xf32>
    return %finished : tensor<2x5x6x19xf32>
  }

  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %func = transform.structured.match ops{["func.func"]} in %root : (!transform.any_op) -> !transform.any_op
    %contraction = transform.structured.match ops{["linalg.conv_2d_nhwc_hwcf"]} in %root : (!transform.any_op) -> !transform.any_op
    %epilogue = transform.get_consumers_of_result %contraction[0] : (!transform.any_op) -> !transform.any_op
    // for co step 16
    // static shapes: co = 16 + 3
    %split = transform.structured.split %contraction after 16 {dimension = 3} : !transform.any_op
    %co_head, %co_rest = transform.split_handle %split : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // pack B to panels
    %packed, %panels = transform.include @pack_panels_16 failures(propagate) (%co_head) : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %packed_1, %panels_1 = transform.include @pack_panels_3 failures(propagate) (%co_rest) : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for n step 1
    %n_block, %n_loop = transform.structured.tile_using_forall %packed tile_sizes [1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %n_block_1, %n_loop_1 = transform.structured.tile_using_forall %packed_1 tile_sizes [1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for oh step 3
    // static shapes: oh = 3 + 2
    %split_1 = transform.structured.split %n_block after 3 {dimension = 1} : !transform.any_op
    %oh_head, %oh_rest = transform.split_handle %split_1 : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %blocks = transform.merge_handles %oh_head, %oh_rest : !transform.any_op
    // static shapes: oh = 3 + 2
    %split_2 = transform.structured.split %n_block_1 after 3 {dimension = 1} : !transform.any_op
    %oh_head_1, %oh_rest_1 = transform.split_handle %split_2 : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %blocks_1 = transform.merge_handles %oh_head_1, %oh_rest_1 : !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // pack A to image
    %copied, %pad, %back = transform.structured.pad %blocks <{padding_values = [0.0 : f32], padding_dimensions = [2, 6], nofold_flags = [1], copy_back_op = "none"}> : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %rows = transform.get_producer_of_operand %copied[0] : (!transform.any_op) -> !transform.any_op
    %row_copy = transform.structured.rewrite_in_destination_passing_style %rows : (!transform.any_op) -> !transform.any_op
    %copied_1, %pad_1, %back_1 = transform.structured.pad %blocks_1 <{padding_values = [0.0 : f32], padding_dimensions = [2, 6], nofold_flags = [1], copy_back_op = "none"}> : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %rows_1 = transform.get_producer_of_operand %copied_1[0] : (!transform.any_op) -> !transform.any_op
    %row_copy_1 = transform.structured.rewrite_in_destination_passing_style %rows_1 : (!transform.any_op) -> !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for co step 16
    // for n step 1
    // for oh step 1
    %oh_block, %oh_loop = transform.structured.tile_using_forall %copied tile_sizes [0, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %oh_block_1, %oh_loop_1 = transform.structured.tile_using_forall %copied_1 tile_sizes [0, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for ow step 4
    // static shapes: ow = 4 + 2
    %ow_head, %ow_rest = transform.foreach %oh_block : !transform.any_op -> !transform.any_op, !transform.any_op {
    ^bb0(%op: !transform.any_op):
      %both = transform.structured.split %op after 4 {dimension = 2} : !transform.any_op
      %h, %r = transform.split_handle %both : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
      transform.yield %h, %r : !transform.any_op, !transform.any_op
    }
    // static shapes: ow = 4 + 2
    %ow_head_1, %ow_rest_1 = transform.foreach %oh_block_1 : !transform.any_op -> !transform.any_op, !transform.any_op {
    ^bb0(%op: !transform.any_op):
      %both = transform.structured.split %op after 4 {dimension = 2} : !transform.any_op
      %h, %r = transform.split_handle %both : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
      transform.yield %h, %r : !transform.any_op, !transform.any_op
    }
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // C += A * B
    %tile = transform.structured.generalize %ow_head : (!transform.any_op) -> !transform.any_op
    %tile_1 = transform.structured.generalize %ow_rest : (!transform.any_op) -> !transform.any_op
    %tile_2 = transform.structured.generalize %ow_head_1 : (!transform.any_op) -> !transform.any_op
    %tile_3 = transform.structured.generalize %ow_rest_1 : (!transform.any_op) -> !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // padded blocks: zeros first, then the pixels
    %pads = transform.structured.match ops{["tensor.pad"]} in %func : (!transform.any_op) -> !transform.any_op
    %filled = transform.structured.rewrite_in_destination_passing_style %pads : (!transform.any_op) -> !transform.any_op
    %zeros = transform.get_producer_of_operand %filled[1] : (!transform.any_op) -> !transform.any_op
    %plain = transform.structured.generalize %zeros : (!transform.any_op) -> !transform.any_op
    transform.include @drop_unit_dims failures(propagate) (%func) : (!transform.any_op) -> ()
    %kernels = transform.collect_matching @contraction_xkkkx in %func : (!transform.any_op) -> !transform.any_op
    %step, %loop, %loop_1 = transform.structured.tile_using_for %kernels tile_sizes [0, 1, 1, 0, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    transform.annotate %loop "accumulates" : !transform.any_op
    transform.annotate %loop_1 "accumulates" : !transform.any_op
    transform.include @drop_unit_dims failures(propagate) (%func) : (!transform.any_op) -> ()
    %kernels_1 = transform.collect_matching @contraction_xkx in %func : (!transform.any_op) -> !transform.any_op
    %step_1, %loop_2 = transform.structured.tile_using_for %kernels_1 tile_sizes [0, 1, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.annotate %loop_2 "accumulates" : !transform.any_op
    transform.annotate %loop_2 "innermost" : !transform.any_op
    %kernels_2 = transform.collect_matching @contraction_xkx in %func : (!transform.any_op) -> !transform.any_op
    %step_2, %loop_3 = transform.structured.tile_using_for %kernels_2 tile_sizes [1, 0, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.loop.unroll_full %loop_3 : !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.include @drop_unit_dims failures(propagate) (%func) : (!transform.any_op) -> ()
    %around = transform.structured.match ops{["scf.for"]} attributes{accumulates} in %func : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %around {
      transform.apply_patterns.tensor.merge_consecutive_insert_extract_slice
    } : !transform.any_op
    // the copies of the packs
    %copies = transform.merge_handles deduplicate %panels, %panels_1, %row_copy, %row_copy_1 : !transform.any_op
    %step_3, %loop_4, %loop_5, %loop_6, %loop_7 = transform.structured.tile_using_for %copies tile_sizes [1, 1, 1, 8] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.structured.vectorize %step_3 : !transform.any_op
    %kernels_3 = transform.collect_matching @contraction in %func : (!transform.any_op) -> !transform.any_op
    transform.structured.vectorize %kernels_3 : !transform.any_op
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

  // B to panels of 16 columns; C only changes its shape, to [rows, panels, columns].
  transform.named_sequence @pack_panels_16(%op: !transform.any_op {transform.consumed})
      -> (!transform.any_op, !transform.any_op) {
    %packed = transform.structured.pack %op packed_sizes = [0, 0, 0, 16, 0, 0, 0]
        : (!transform.any_op) -> !transform.any_op
    %plain = transform.get_producer_of_operand %packed[1]
        : (!transform.any_op) -> !transform.any_op
    %contraction, %pack, %none = transform.structured.pack_transpose %plain
        with_compute_op(%packed) outer_perm = [3, 0, 1, 2]
        : (!transform.any_op, !transform.any_op)
        -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %c = transform.get_producer_of_operand %contraction[2]
        : (!transform.any_op) -> !transform.op<"linalg.pack">
    %result = transform.get_consumers_of_result %contraction[0]
        : (!transform.any_op) -> !transform.op<"linalg.unpack">
    %b = transform.cast %pack : !transform.any_op to !transform.op<"linalg.pack">
    %b_parts:3 = transform.structured.lower_pack %b : (!transform.op<"linalg.pack">)
        -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
            !transform.op<"linalg.transpose">)
    %c_parts:3 = transform.structured.lower_pack %c : (!transform.op<"linalg.pack">)
        -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
            !transform.op<"linalg.transpose">)
    %r_parts:5 = transform.structured.lower_unpack %result : (!transform.op<"linalg.unpack">)
        -> (!transform.op<"tensor.empty">, !transform.op<"linalg.transpose">,
            !transform.op<"tensor.collapse_shape">, !transform.op<"tensor.extract_slice">,
            !transform.op<"linalg.copy">)
    // The copy of C onto itself: as a generic that yields its input it folds away.
    %identity = transform.structured.generalize %r_parts#4
        : (!transform.op<"linalg.copy">) -> !transform.any_op
    %panels = transform.cast %b_parts#2 : !transform.op<"linalg.transpose"> to !transform.any_op
    transform.yield %contraction, %panels : !transform.any_op, !transform.any_op
  }

  // B to panels of 3 columns; C only changes its shape, to [rows, panels, columns].
  transform.named_sequence @pack_panels_3(%op: !transform.any_op {transform.consumed})
      -> (!transform.any_op, !transform.any_op) {
    %packed = transform.structured.pack %op packed_sizes = [0, 0, 0, 3, 0, 0, 0]
        : (!transform.any_op) -> !transform.any_op
    %plain = transform.get_producer_of_operand %packed[1]
        : (!transform.any_op) -> !transform.any_op
    %contraction, %pack, %none = transform.structured.pack_transpose %plain
        with_compute_op(%packed) outer_perm = [3, 0, 1, 2]
        : (!transform.any_op, !transform.any_op)
        -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %c = transform.get_producer_of_operand %contraction[2]
        : (!transform.any_op) -> !transform.op<"linalg.pack">
    %result = transform.get_consumers_of_result %contraction[0]
        : (!transform.any_op) -> !transform.op<"linalg.unpack">
    %b = transform.cast %pack : !transform.any_op to !transform.op<"linalg.pack">
    %b_parts:3 = transform.structured.lower_pack %b : (!transform.op<"linalg.pack">)
        -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
            !transform.op<"linalg.transpose">)
    %c_parts:3 = transform.structured.lower_pack %c : (!transform.op<"linalg.pack">)
        -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
            !transform.op<"linalg.transpose">)
    %r_parts:5 = transform.structured.lower_unpack %result : (!transform.op<"linalg.unpack">)
        -> (!transform.op<"tensor.empty">, !transform.op<"linalg.transpose">,
            !transform.op<"tensor.collapse_shape">, !transform.op<"tensor.extract_slice">,
            !transform.op<"linalg.copy">)
    // The copy of C onto itself: as a generic that yields its input it folds away.
    %identity = transform.structured.generalize %r_parts#4
        : (!transform.op<"linalg.copy">) -> !transform.any_op
    %panels = transform.cast %b_parts#2 : !transform.op<"linalg.transpose"> to !transform.any_op
    transform.yield %contraction, %panels : !transform.any_op, !transform.any_op
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

  // Contractions over x k k k x (k is a reduction).
  transform.named_sequence @contraction_xkkkx(%op: !transform.any_op {transform.readonly})
      -> !transform.any_op {
    transform.match.structured failures(propagate) %op : !transform.any_op {
    ^bb0(%candidate: !transform.any_op):
      %rank = transform.match.structured.rank %candidate
          : (!transform.any_op) -> !transform.param<i64>
      %wanted = transform.param.constant 5 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %rank, %wanted : !transform.param<i64>
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 0>, parallel}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 1>, reduction}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 2>, reduction}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 3>, reduction}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 4>, parallel}> : (!transform.any_op) -> ()
      "transform.match.structured.body"(%candidate) <{contraction = ["arith.mulf", "arith.addf"]}>
          : (!transform.any_op) -> ()
      transform.match.structured.yield
    }
    transform.yield %op : !transform.any_op
  }

  // Contractions over x k x (k is a reduction).
  transform.named_sequence @contraction_xkx(%op: !transform.any_op {transform.readonly})
      -> !transform.any_op {
    transform.match.structured failures(propagate) %op : !transform.any_op {
    ^bb0(%candidate: !transform.any_op):
      %rank = transform.match.structured.rank %candidate
          : (!transform.any_op) -> !transform.param<i64>
      %wanted = transform.param.constant 3 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %rank, %wanted : !transform.param<i64>
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 0>, parallel}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 1>, reduction}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 2>, parallel}> : (!transform.any_op) -> ()
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
