// problem:  conv2d:n=1,h=9,w=11,ci=16,co=32,kh=3,kw=3,groups=2,dtype=bf16
// schedule: c05b0fcecf1426f8
// note:     bf16 is widened to f32: MLIR's transform dialect reaches no bf16 dot product, and iree-opt has no operations on matrix tiles (x86.amx)
//
// for g step 1:  # tile, 2 trips
//   for co step 16:  # tile, 1 trips
//     pack B to panels 1x9x8x16
//     for n step 1:  # tile, 1 trips
//       for oh step 3:  # tile, 3 trips
//         pack A to image 5x11x8
//         for co step 16:  # micro, 1 trips
//           for n step 1:  # micro, 1 trips
//             for oh step 1:  # micro, 3 trips
//               for ow step 4:  # micro, 3 trips
//                 C += A * B  # 4x16 over 8 x 9 taps, unrolled 2
//                 store C
//
// tile dim=g size=1
// tile dim=co size=16
// pack operand=B
// tile dim=n size=1
// tile dim=oh size=3
// pack operand=A
// register rows=4 cols=16 outer=cols
// unroll factor=2
//
module attributes {transform.with_named_sequence} {

  func.func @kernel(%A: tensor<1x9x11x16xbf16> {bufferization.writable = false}, %B: tensor<3x3x8x32xbf16> {bufferization.writable = false}, %C: tensor<1x7x9x32xf32> {bufferization.writable = true}) -> tensor<1x7x9x32xf32> {
    %zero = arith.constant 0.0 : f32
    %result = tensor.expand_shape %C [[0], [1], [2], [3, 4]] output_shape [1, 7, 9, 2, 16] : tensor<1x7x9x32xf32> into tensor<1x7x9x2x16xf32>
    %init = linalg.fill ins(%zero : f32) outs(%result : tensor<1x7x9x2x16xf32>) -> tensor<1x7x9x2x16xf32>
    %A_view = tensor.expand_shape %A [[0], [1], [2], [3, 4]] output_shape [1, 9, 11, 2, 8] : tensor<1x9x11x16xbf16> into tensor<1x9x11x2x8xbf16>
    %B_view = tensor.expand_shape %B [[0], [1], [2], [3, 4]] output_shape [3, 3, 8, 2, 16] : tensor<3x3x8x32xbf16> into tensor<3x3x8x2x16xbf16>
    %product = linalg.generic {indexing_maps = [affine_map<(g, n, oh, ow, co, kh, kw, ci) -> (n, oh * 1 + kh * 1, ow * 1 + kw * 1, g, ci)>, affine_map<(g, n, oh, ow, co, kh, kw, ci) -> (kh, kw, ci, g, co)>, affine_map<(g, n, oh, ow, co, kh, kw, ci) -> (n, oh, ow, g, co)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]} ins(%A_view, %B_view : tensor<1x9x11x2x8xbf16>, tensor<3x3x8x2x16xbf16>) outs(%init : tensor<1x7x9x2x16xf32>) {
    ^bb0(%a: bf16, %b: bf16, %c: f32):
      %a_wide = arith.extf %a : bf16 to f32
      %b_wide = arith.extf %b : bf16 to f32
      %p = arith.mulf %a_wide, %b_wide : f32
      %s = arith.addf %c, %p : f32
      linalg.yield %s : f32
    } -> tensor<1x7x9x2x16xf32>
    %stored = tensor.collapse_shape %product [[0], [1], [2], [3, 4]] : tensor<1x7x9x2x16xf32> into tensor<1x7x9x32xf32>
    return %stored : tensor<1x7x9x32xf32>
  }

  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %func = transform.structured.match ops{["func.func"]} in %root : (!transform.any_op) -> !transform.any_op
    %contraction = transform.collect_matching @contraction in %root : (!transform.any_op) -> !transform.any_op
    // for g step 1
    %g_block, %g_loop = transform.structured.tile_using_forall %contraction tile_sizes [1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %fill = transform.structured.match ops{["linalg.fill"]} in %func : (!transform.any_op) -> !transform.any_op
    %fill_tile, %around = transform.structured.fuse_into_containing_op %fill into %g_loop : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for co step 16
    // pack B to panels
    %packed, %panels = transform.include @pack_panels_16 failures(propagate) (%g_block) : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for n step 1
    // for oh step 3
    // static shapes: oh = 6 + 1
    %split = transform.structured.split %packed after 6 {dimension = 2} : !transform.any_op
    %oh_head, %oh_rest = transform.split_handle %split : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %blocks = transform.merge_handles %oh_head, %oh_rest : !transform.any_op
    %oh_block, %oh_loop = transform.structured.tile_using_forall %blocks tile_sizes [0, 0, 3] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // pack A to image
    %copied, %pad, %back = transform.structured.pad %oh_block <{padding_values = [0.0 : bf16], padding_dimensions = [3, 7], nofold_flags = [1], copy_back_op = "none"}> : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %rows = transform.get_producer_of_operand %copied[0] : (!transform.any_op) -> !transform.any_op
    %row_copy = transform.structured.rewrite_in_destination_passing_style %rows : (!transform.any_op) -> !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for co step 16
    // for n step 1
    // for oh step 1
    %oh_block_1, %oh_loop_1 = transform.structured.tile_using_forall %copied tile_sizes [0, 0, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for ow step 4
    // static shapes: ow = 8 + 1
    %ow_head, %ow_rest = transform.foreach %oh_block_1 : !transform.any_op -> !transform.any_op, !transform.any_op {
    ^bb0(%op: !transform.any_op):
      %both = transform.structured.split %op after 8 {dimension = 3} : !transform.any_op
      %h, %r = transform.split_handle %both : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
      transform.yield %h, %r : !transform.any_op, !transform.any_op
    }
    %ow_block, %ow_loop = transform.structured.tile_using_forall %ow_head tile_sizes [0, 0, 0, 4] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // C += A * B
    %tile = transform.structured.generalize %ow_block : (!transform.any_op) -> !transform.any_op
    %tile_1 = transform.structured.generalize %ow_rest : (!transform.any_op) -> !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.include @drop_unit_dims failures(propagate) (%func) : (!transform.any_op) -> ()
    %kernels = transform.collect_matching @contraction_xkkkx in %func : (!transform.any_op) -> !transform.any_op
    %step, %loop, %loop_1 = transform.structured.tile_using_for %kernels tile_sizes [0, 1, 1, 0, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    transform.annotate %loop "accumulates" : !transform.any_op
    transform.annotate %loop_1 "accumulates" : !transform.any_op
    %kernels_1 = transform.collect_matching @contraction_kkkx in %func : (!transform.any_op) -> !transform.any_op
    %step_1, %loop_2, %loop_3 = transform.structured.tile_using_for %kernels_1 tile_sizes [1, 1, 0, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    transform.annotate %loop_2 "accumulates" : !transform.any_op
    transform.annotate %loop_3 "accumulates" : !transform.any_op
    transform.include @drop_unit_dims failures(propagate) (%func) : (!transform.any_op) -> ()
    %kernels_2 = transform.collect_matching @contraction_xkx in %func : (!transform.any_op) -> !transform.any_op
    %step_2, %loop_4 = transform.structured.tile_using_for %kernels_2 tile_sizes [0, 1, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.annotate %loop_4 "accumulates" : !transform.any_op
    transform.annotate %loop_4 "innermost" : !transform.any_op
    %kernels_3 = transform.collect_matching @contraction_kx in %func : (!transform.any_op) -> !transform.any_op
    %step_3, %loop_5 = transform.structured.tile_using_for %kernels_3 tile_sizes [1, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.annotate %loop_5 "accumulates" : !transform.any_op
    transform.annotate %loop_5 "innermost" : !transform.any_op
    %kernels_4 = transform.collect_matching @contraction_xkx in %func : (!transform.any_op) -> !transform.any_op
    %step_4, %loop_6 = transform.structured.tile_using_for %kernels_4 tile_sizes [1, 0, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.loop.unroll_full %loop_6 : !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.include @drop_unit_dims failures(propagate) (%func) : (!transform.any_op) -> ()
    %around_1 = transform.structured.match ops{["scf.for"]} attributes{accumulates} in %func : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %around_1 {
      transform.apply_patterns.tensor.merge_consecutive_insert_extract_slice
    } : !transform.any_op
    // the copies of the packs
    %copies = transform.merge_handles deduplicate %panels, %row_copy : !transform.any_op
    %step_5, %loop_7, %loop_8, %loop_9, %loop_10, %loop_11 = transform.structured.tile_using_for %copies tile_sizes [1, 1, 1, 1, 8] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.structured.vectorize %step_5 : !transform.any_op
    %kernels_5 = transform.collect_matching @contraction in %func : (!transform.any_op) -> !transform.any_op
    transform.structured.vectorize %kernels_5 : !transform.any_op
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
    %packed = transform.structured.pack %op packed_sizes = [0, 0, 0, 0, 16, 0, 0, 0]
        : (!transform.any_op) -> !transform.any_op
    %plain = transform.get_producer_of_operand %packed[1]
        : (!transform.any_op) -> !transform.any_op
    %contraction, %pack, %none = transform.structured.pack_transpose %plain
        with_compute_op(%packed) outer_perm = [3, 4, 0, 1, 2]
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

  // Contractions over k k k x (k is a reduction).
  transform.named_sequence @contraction_kkkx(%op: !transform.any_op {transform.readonly})
      -> !transform.any_op {
    transform.match.structured failures(propagate) %op : !transform.any_op {
    ^bb0(%candidate: !transform.any_op):
      %rank = transform.match.structured.rank %candidate
          : (!transform.any_op) -> !transform.param<i64>
      %wanted = transform.param.constant 4 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %rank, %wanted : !transform.param<i64>
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 0>, reduction}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 1>, reduction}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 2>, reduction}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 3>, parallel}> : (!transform.any_op) -> ()
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

  // Contractions over k x (k is a reduction).
  transform.named_sequence @contraction_kx(%op: !transform.any_op {transform.readonly})
      -> !transform.any_op {
    transform.match.structured failures(propagate) %op : !transform.any_op {
    ^bb0(%candidate: !transform.any_op):
      %rank = transform.match.structured.rank %candidate
          : (!transform.any_op) -> !transform.param<i64>
      %wanted = transform.param.constant 2 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %rank, %wanted : !transform.param<i64>
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 0>, reduction}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%candidate) <{raw_dim_list = array<i64: 1>, parallel}> : (!transform.any_op) -> ()
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
      // Operands are widened before they are broadcast, so that the product is a contraction.
      transform.apply_patterns.vector.sink_ops
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
