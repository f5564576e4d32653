// problem:  matmul:m=64,n=96,k=48,dtype=i8,weights=constant
// schedule: 4b6e4638bd313f24
// note:     i8 is widened to i32: MLIR's transform dialect reaches no dot product (VNNI), and iree-opt has no operations on matrix tiles (x86.amx)
// note:     constant weights are an ordinary argument: where the schedule packs them, every run does, and the speed includes it
//
// for n step 32:  # tile, 3 trips
//   for k step 16:  # k-block, 3 trips
//     pack B to panels 2x1x16x16, ahead
//     for m step 8:  # tile, 8 trips
//       pack A to rows 8x16
//       for n step 16:  # micro, 2 trips
//         for m step 4:  # micro, 2 trips
//           C += A * B  # 4x16 over 16, unrolled 4
//           store C
//
// tile dim=n size=32
// stream dim=k depth=16
// pack operand=B
// tile dim=m size=8
// pack operand=A
// register rows=4 cols=16 outer=cols
// unroll factor=4
//
module attributes {transform.with_named_sequence} {

  func.func @kernel(%A: tensor<64x48xi8> {bufferization.writable = false}, %B: tensor<48x96xi8> {bufferization.writable = false}, %C: tensor<64x96xi32> {bufferization.writable = true}) -> tensor<64x96xi32> {
    %zero = arith.constant 0 : i32
    %init = linalg.fill ins(%zero : i32) outs(%C : tensor<64x96xi32>) -> tensor<64x96xi32>
    %product = linalg.matmul ins(%A, %B : tensor<64x48xi8>, tensor<48x96xi8>) outs(%init : tensor<64x96xi32>) -> tensor<64x96xi32>
    return %product : tensor<64x96xi32>
  }

  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %func = transform.structured.match ops{["func.func"]} in %root : (!transform.any_op) -> !transform.any_op
    %contraction = transform.structured.match ops{["linalg.matmul"]} in %root : (!transform.any_op) -> !transform.any_op
    // for n step 32
    %n_block, %n_loop = transform.structured.tile_using_forall %contraction tile_sizes [0, 32] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %fill = transform.structured.match ops{["linalg.fill"]} in %func : (!transform.any_op) -> !transform.any_op
    %fill_tile, %around = transform.structured.fuse_into_containing_op %fill into %n_loop : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for k step 16
    %k_block, %k_loop = transform.structured.tile_using_for %n_block tile_sizes [0, 0, 16] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // pack B to panels
    %packed, %panels = transform.include @pack_panels_16 failures(propagate) (%k_block) : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for m step 8
    %m_block, %m_loop = transform.structured.tile_using_forall %packed tile_sizes [8] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // pack A to rows
    %copied, %pad, %back = transform.structured.pad %m_block <{padding_values = [0 : i8], padding_dimensions = [0, 2], nofold_flags = [1], copy_back_op = "none"}> : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %rows = transform.get_producer_of_operand %copied[0] : (!transform.any_op) -> !transform.any_op
    %row_copy = transform.structured.rewrite_in_destination_passing_style %rows : (!transform.any_op) -> !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for n step 16
    %n_block_1, %n_loop_1 = transform.structured.tile_using_forall %copied tile_sizes [0, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // for m step 4
    %m_block_1, %m_loop_1 = transform.structured.tile_using_forall %n_block_1 tile_sizes [4] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // C += A * B
    %tile = transform.structured.generalize %m_block_1 : (!transform.any_op) -> !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.include @drop_unit_dims failures(propagate) (%func) : (!transform.any_op) -> ()
    %kernels = transform.collect_matching @contraction_xkx in %func : (!transform.any_op) -> !transform.any_op
    %step, %loop = transform.structured.tile_using_for %kernels tile_sizes [0, 1, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.annotate %loop "accumulates" : !transform.any_op
    transform.annotate %loop "innermost" : !transform.any_op
    // the copies of the packs
    %copies = transform.merge_handles deduplicate %panels : !transform.any_op
    %step_1, %loop_1, %loop_2 = transform.structured.tile_using_for %copies tile_sizes [1, 8] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %copies_1 = transform.merge_handles deduplicate %row_copy : !transform.any_op
    %step_2, %loop_3, %loop_4 = transform.structured.tile_using_for %copies_1 tile_sizes [1, 16] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    transform.structured.vectorize %step_1 : !transform.any_op
    transform.structured.vectorize %step_2 : !transform.any_op
    %kernels_1 = transform.collect_matching @contraction in %func : (!transform.any_op) -> !transform.any_op
    transform.structured.vectorize %kernels_1 : !transform.any_op
    transform.include @hoist_accumulators failures(propagate) (%func) : (!transform.any_op) -> ()
    // unroll factor=4
    %innermost = transform.structured.match ops{["scf.for"]} attributes{innermost} in %func : (!transform.any_op) -> !transform.any_op
    transform.loop.unroll %innermost factor = 4 : !transform.any_op
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
    %packed = transform.structured.pack %op packed_sizes = [0, 16, 0]
        : (!transform.any_op) -> !transform.any_op
    %plain = transform.get_producer_of_operand %packed[1]
        : (!transform.any_op) -> !transform.any_op
    %contraction, %pack, %none = transform.structured.pack_transpose %plain
        with_compute_op(%packed) outer_perm = [1, 0]
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
      "transform.match.structured.body"(%candidate) <{contraction = ["arith.muli", "arith.addi"]}>
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
      "transform.match.structured.body"(%candidate) <{contraction = ["arith.muli", "arith.addi"]}>
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
}
