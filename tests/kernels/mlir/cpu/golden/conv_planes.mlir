// problem:  conv2d:n=2,h=9,w=11,ci=8,co=16,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=f64
// schedule: bc9b5923ba4e9f12
// note:     the image's patches are gathered ahead, in a pass of their own; pack B copies them
//
// for n step 1:  # tile, 2 trips
//   for p step 16:  # tile, 7 trips
//     for k step 4:  # k-block, 18 trips
//       pack B to panels 1x1x4x16
//       for co step 8:  # tile, 2 trips
//         pack A to rows 8x4
//         for p step 16:  # micro, 1 trips
//           for co step 4:  # micro, 2 trips
//             C += A * B  # 4x16 over 4, unrolled 2
//             store C
//
// tile dim=n size=1
// tile dim=p size=16
// stream dim=k depth=4
// pack operand=B
// tile dim=co size=8
// pack operand=A
// register rows=4 cols=16 outer=cols
// unroll factor=2
//
module attributes {transform.with_named_sequence} {

  func.func @kernel(%A: tensor<2x8x9x11xf64> {bufferization.writable = false}, %B: tensor<16x8x3x3xf64> {bufferization.writable = false}, %C: tensor<2x16x9x11xf64> {bufferization.writable = true}) -> tensor<2x16x9x11xf64> {
    %zero = arith.constant 0.0 : f64
    %result = tensor.collapse_shape %C [[0], [1], [2, 3]] : tensor<2x16x9x11xf64> into tensor<2x16x99xf64>
    %init = linalg.fill ins(%zero : f64) outs(%result : tensor<2x16x99xf64>) -> tensor<2x16x99xf64>
    %A_view = tensor.collapse_shape %B [[0], [1, 2, 3]] : tensor<16x8x3x3xf64> into tensor<16x72xf64>
    %padded = tensor.pad %A low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%i: index, %y: index, %x: index, %c: index):
      tensor.yield %zero : f64
    } : tensor<2x8x9x11xf64> to tensor<2x8x11x13xf64>
    %channels = tensor.expand_shape %padded [[0], [1, 2], [3], [4]] output_shape [2, 1, 8, 11, 13] : tensor<2x8x11x13xf64> into tensor<2x1x8x11x13xf64>
    %unset = tensor.empty() : tensor<2x1x8x3x3x9x11xf64>
    %patches = linalg.generic {indexing_maps = [affine_map<(n, g, ci, kh, kw, oh, ow) -> (n, g, ci, oh * 1 + kh * 1, ow * 1 + kw * 1)>, affine_map<(n, g, ci, kh, kw, oh, ow) -> (n, g, ci, kh, kw, oh, ow)>], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%channels : tensor<2x1x8x11x13xf64>) outs(%unset : tensor<2x1x8x3x3x9x11xf64>) {
    ^bb0(%i: f64, %o: f64):
      linalg.yield %i : f64
    } -> tensor<2x1x8x3x3x9x11xf64>
    %B_view = tensor.collapse_shape %patches [[0], [1, 2, 3, 4], [5, 6]] : tensor<2x1x8x3x3x9x11xf64> into tensor<2x72x99xf64>
    %product = linalg.generic {indexing_maps = [affine_map<(n, co, p, k) -> (co, k)>, affine_map<(n, co, p, k) -> (n, k, p)>, affine_map<(n, co, p, k) -> (n, co, p)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%A_view, %B_view : tensor<16x72xf64>, tensor<2x72x99xf64>) outs(%init : tensor<2x16x99xf64>) {
    ^bb0(%a: f64, %b: f64, %c: f64):
      %p = arith.mulf %a, %b : f64
      %s = arith.addf %c, %p : f64
      linalg.yield %s : f64
    } -> tensor<2x16x99xf64>
    %stored = tensor.expand_shape %product [[0], [1], [2, 3]] output_shape [2, 16, 9, 11] : tensor<2x16x99xf64> into tensor<2x16x9x11xf64>
    return %stored : tensor<2x16x9x11xf64>
  }

  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %func = transform.structured.match ops{["func.func"]} in %root : (!transform.any_op) -> !transform.any_op
    %contraction = transform.collect_matching @contraction in %root : (!transform.any_op) -> !transform.any_op
    // for n step 1
    %n_block, %n_loop = transform.structured.tile_using_forall %contraction tile_sizes [1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %fill = transform.structured.match ops{["linalg.fill"]} in %func : (!transform.any_op) -> !transform.any_op
    %fill_tile, %around = transform.structured.fuse_into_containing_op %fill into %n_loop : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for p step 16
    // static shapes: p = 96 + 3
    %split = transform.structured.split %n_block after 96 {dimension = 2} : !transform.any_op
    %p_head, %p_rest = transform.split_handle %split : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %p_block, %p_loop = transform.structured.tile_using_forall %p_head tile_sizes [0, 0, 16] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for k step 4
    %k_block, %k_loop = transform.structured.tile_using_for %p_block tile_sizes [0, 0, 0, 4] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %k_block_1, %k_loop_1 = transform.structured.tile_using_for %p_rest tile_sizes [0, 0, 0, 4] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // pack B to panels
    %packed, %panels = transform.include @pack_panels_16 failures(propagate) (%k_block) : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %packed_1, %panels_1 = transform.include @pack_panels_3 failures(propagate) (%k_block_1) : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for co step 8
    %co_block, %co_loop = transform.structured.tile_using_forall %packed tile_sizes [0, 8] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %co_block_1, %co_loop_1 = transform.structured.tile_using_forall %packed_1 tile_sizes [0, 8] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // pack A to rows
    %copied, %pad, %back = transform.structured.pad %co_block <{padding_values = [0.0 : f64], padding_dimensions = [1, 3], nofold_flags = [1], copy_back_op = "none"}> : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %rows = transform.get_producer_of_operand %copied[0] : (!transform.any_op) -> !transform.any_op
    %row_copy = transform.structured.rewrite_in_destination_passing_style %rows : (!transform.any_op) -> !transform.any_op
    %copied_1, %pad_1, %back_1 = transform.structured.pad %co_block_1 <{padding_values = [0.0 : f64], padding_dimensions = [1, 3], nofold_flags = [1], copy_back_op = "none"}> : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %rows_1 = transform.get_producer_of_operand %copied_1[0] : (!transform.any_op) -> !transform.any_op
    %row_copy_1 = transform.structured.rewrite_in_destination_passing_style %rows_1 : (!transform.any_op) -> !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for p step 16
    // for co step 4
    %co_block_2, %co_loop_2 = transform.structured.tile_using_forall %copied tile_sizes [0, 4] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %co_block_3, %co_loop_3 = transform.structured.tile_using_forall %copied_1 tile_sizes [0, 4] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // C += A * B
    %tile = transform.structured.generalize %co_block_2 : (!transform.any_op) -> !transform.any_op
    %tile_1 = transform.structured.generalize %co_block_3 : (!transform.any_op) -> !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.include @drop_unit_dims failures(propagate) (%func) : (!transform.any_op) -> ()
    %kernels = transform.collect_matching @contraction_xkx in %func : (!transform.any_op) -> !transform.any_op
    %step, %loop = transform.structured.tile_using_for %kernels tile_sizes [0, 1, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.annotate %loop "accumulates" : !transform.any_op
    transform.annotate %loop "innermost" : !transform.any_op
    // the copies of the packs
    %copies = transform.merge_handles deduplicate %panels, %panels_1 : !transform.any_op
    %step_1, %loop_1, %loop_2, %loop_3 = transform.structured.tile_using_for %copies tile_sizes [1, 1, 4] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    %copies_1 = transform.merge_handles deduplicate %row_copy, %row_copy_1 : !transform.any_op
    %step_2, %loop_4, %loop_5 = transform.structured.tile_using_for %copies_1 tile_sizes [1, 4] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.structured.vectorize %step_1 : !transform.any_op
    transform.structured.vectorize %step_2 : !transform.any_op
    %kernels_1 = transform.collect_matching @contraction in %func : (!transform.any_op) -> !transform.any_op
    transform.structured.vectorize %kernels_1 : !transform.any_op
    transform.include @hoist_accumulators failures(propagate) (%func) : (!transform.any_op) -> ()
    // unroll factor=2
    %innermost = transform.structured.match ops{["scf.for"]} attributes{innermost} in %func : (!transform.any_op) -> !transform.any_op
    transform.loop.unroll %innermost factor = 2 : !transform.any_op
    // buffers, and vectors that the machine has
    %buffers = transform.include @bufferize failures(propagate) (%root) : (!transform.any_op) -> !transform.any_op
    transform.include @lower_vectors failures(propagate) (%buffers) : (!transform.any_op) -> ()
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
    %packed = transform.structured.pack %op packed_sizes = [0, 0, 16, 0]
        : (!transform.any_op) -> !transform.any_op
    %plain = transform.get_producer_of_operand %packed[1]
        : (!transform.any_op) -> !transform.any_op
    %contraction, %pack, %none = transform.structured.pack_transpose %plain
        with_compute_op(%packed) outer_perm = [0, 2, 1]
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
    %packed = transform.structured.pack %op packed_sizes = [0, 0, 3, 0]
        : (!transform.any_op) -> !transform.any_op
    %plain = transform.get_producer_of_operand %packed[1]
        : (!transform.any_op) -> !transform.any_op
    %contraction, %pack, %none = transform.structured.pack_transpose %plain
        with_compute_op(%packed) outer_perm = [0, 2, 1]
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
}
