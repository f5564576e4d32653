// problem:  matmul:m=1024,n=512,k=2048,dtype=i32
// flavor:   air
// chosen:   modelled, not measured, for 2x2 cores, L1 of 65536 bytes, L2 of 524288
// holds:    L1 20480 bytes, L2 524288, chunks 2 times; 2x2 cores busy
// moves:    L3 to L2 268435456 bytes in 8192 copies, L2 to L1 268435456 in 65536 packs, results 2097152
// mlir:     VERSION
//
// tile   m=64 n=64 on block
// tile   m=32 n=32 on thread
// pack   A 4x8, B 8x8, C 4x8, outer and inner permutation
// stream k=256 to L2 (copies of A and B)
// stream k=32 to L1 (packs of A and B)
// init   fill in L1, packed; result L1 to L3
//
module attributes {transform.with_named_sequence} {

  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %func = transform.structured.match ops{["func.func"]} in %root : (!transform.any_op) -> !transform.any_op
    %fill = transform.structured.match ops{["linalg.fill"]} in %root : (!transform.any_op) -> !transform.any_op
    %matmul = transform.structured.match ops{["linalg.matmul"]} in %root : (!transform.any_op) -> !transform.any_op
    // tile   m=64 n=64 on block
    %block_tile, %blocks = transform.structured.tile_using_forall %matmul tile_sizes [64, 64] (mapping = [#gpu.block<y>, #gpu.block<x>]) : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %block_fill, %around = transform.structured.fuse_into_containing_op %fill into %blocks : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // tile   m=32 n=32 on thread
    %thread_tile, %threads = transform.structured.tile_using_forall %block_tile tile_sizes [32, 32] (mapping = [#gpu.thread<y>, #gpu.thread<x>]) : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %thread_fill, %around_1 = transform.structured.fuse_into_containing_op %block_fill into %threads : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    %padded, %pads, %back = transform.structured.pad %thread_tile <{padding_values = [0 : i32, 0 : i32, 0 : i32], padding_dimensions = [0, 1, 2], nofold_flags = [1, 1, 0], copy_back_op = "none"}> : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %made_a = transform.get_producer_of_operand %padded[0] : (!transform.any_op) -> !transform.any_op
    %copy_a = transform.structured.rewrite_in_destination_passing_style %made_a : (!transform.any_op) -> !transform.any_op
    %made_b = transform.get_producer_of_operand %padded[1] : (!transform.any_op) -> !transform.any_op
    %copy_b = transform.structured.rewrite_in_destination_passing_style %made_b : (!transform.any_op) -> !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // pack   A 4x8, B 8x8, C 4x8, outer and inner permutation
    %packed = transform.structured.pack %padded packed_sizes = [4, 8, 8] : (!transform.any_op) -> !transform.any_op
    %pack_a_plain = transform.get_producer_of_operand %packed[0] : (!transform.any_op) -> !transform.any_op
    %packed_1, %pack_a, %unpack = transform.structured.pack_transpose %pack_a_plain with_compute_op(%packed) outer_perm = [1, 0] : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %pack_b_plain = transform.get_producer_of_operand %packed_1[1] : (!transform.any_op) -> !transform.any_op
    %packed_2, %pack_b, %unpack_1 = transform.structured.pack_transpose %pack_b_plain with_compute_op(%packed_1) outer_perm = [1, 0] inner_perm = [1, 0] : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    %pack_c_plain = transform.get_consumers_of_result %packed_2[0] : (!transform.any_op) -> !transform.any_op
    %packed_3, %pack_c, %unpack_2 = transform.structured.pack_transpose %pack_c_plain with_compute_op(%packed_2) outer_perm = [1, 0] : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // stream k=256 to L2 (copies of A and B)
    %outer_chunk, %outer_loop = transform.structured.tile_using_for %packed_3 tile_sizes [0, 0, 32, 0, 0, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %outer_pack_a, %around_2 = transform.structured.fuse_into_containing_op %pack_a into %outer_loop : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    %outer_pack_b, %around_3 = transform.structured.fuse_into_containing_op %pack_b into %around_2 : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    %outer_copy_a, %around_4 = transform.structured.fuse_into_containing_op %copy_a into %around_3 : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    %outer_copy_b, %around_5 = transform.structured.fuse_into_containing_op %copy_b into %around_4 : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // stream k=32 to L1 (packs of A and B)
    %inner_chunk, %inner_loop = transform.structured.tile_using_for %outer_chunk tile_sizes [0, 0, 4, 0, 0, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %inner_pack_a, %around_6 = transform.structured.fuse_into_containing_op %outer_pack_a into %inner_loop : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    %inner_pack_b, %around_7 = transform.structured.fuse_into_containing_op %outer_pack_b into %around_6 : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // init   fill in L1, packed; result L1 to L3
    %packed_fill = transform.structured.match ops{["linalg.fill"]} in %func : (!transform.any_op) -> !transform.any_op
    %buffer_c, %to_c = transform.structured.bufferize_to_allocation %packed_fill <{memory_space = 2, bufferize_destination_only, emit_dealloc}> : !transform.any_op
    %buffer_a, %to_a = transform.structured.bufferize_to_allocation %inner_pack_a <{memory_space = 2, bufferize_destination_only, emit_dealloc}> : !transform.any_op
    %buffer_b, %to_b = transform.structured.bufferize_to_allocation %inner_pack_b <{memory_space = 2, bufferize_destination_only, emit_dealloc}> : !transform.any_op
    %buffer_l2_a, %to_l2_a = transform.structured.bufferize_to_allocation %outer_copy_a <{memory_space = 1, bufferize_destination_only, emit_dealloc}> : !transform.any_op
    %buffer_l2_b, %to_l2_b = transform.structured.bufferize_to_allocation %outer_copy_b <{memory_space = 1, bufferize_destination_only, emit_dealloc}> : !transform.any_op
    transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
    // buffers
    %buffers = transform.include @bufferize failures(propagate) (%root) : (!transform.any_op) -> !transform.any_op
    transform.include @cleanup failures(propagate) (%buffers) : (!transform.any_op) -> ()
    transform.include @cleanup failures(propagate) (%buffers) : (!transform.any_op) -> ()
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

  // Tensors to buffers: C in place, and the allocations that the steps request.
  transform.named_sequence @bufferize(%root: !transform.any_op {transform.consumed})
      -> !transform.any_op {
    transform.bufferization.eliminate_empty_tensors %root : !transform.any_op
    %module = transform.bufferization.one_shot_bufferize layout{IdentityLayoutMap} %root
        <{bufferize_function_boundaries = true}> : (!transform.any_op) -> !transform.any_op
    %func = transform.structured.match ops{["func.func"]} in %module
        : (!transform.any_op) -> !transform.any_op
    transform.yield %func : !transform.any_op
  }
}
