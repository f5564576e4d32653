"""The named sequences that every script shares: one job each, none depends on a size.

Their order matters. Accumulators stay in registers only if the kernel is vectorised on
tensors, its accesses are folded into transfers, and the accumulator's are hoisted out of
the reduction before bufferisation; contractions become outer products last.
"""

CLEANUP = """\
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
"""

DROP_UNIT_DIMS = """\
// A micro-tile is a plain (rows, depth, cols) contraction once dims of extent 1 are gone.
transform.named_sequence @drop_unit_dims(%func: !transform.any_op {transform.readonly}) {
  transform.apply_patterns to %func {
    transform.apply_patterns.linalg.fold_unit_extent_dims_via_slices
    transform.apply_patterns.linalg.swap_extract_slice_with_fill
  } : !transform.any_op
  transform.include @cleanup failures(propagate) (%func) : (!transform.any_op) -> ()
  transform.yield
}
"""


def bufferize(what: str, then: str = "") -> str:
    """The sequence from tensors to buffers.

    Args:
        what: its comment.
        then: operations on the function `%func` afterwards.
    """
    return f"""\
// Tensors to buffers: {what}
transform.named_sequence @bufferize(%root: !transform.any_op {{transform.consumed}})
    -> !transform.any_op {{
  transform.bufferization.eliminate_empty_tensors %root : !transform.any_op
  %module = transform.bufferization.one_shot_bufferize layout{{IdentityLayoutMap}} %root
      <{{bufferize_function_boundaries = true}}> : (!transform.any_op) -> !transform.any_op
  %func = transform.structured.match ops{{["func.func"]}} in %module
      : (!transform.any_op) -> !transform.any_op
{then}  transform.yield %func : !transform.any_op
}}
"""


FOLD_ALIASES = """\
  transform.apply_patterns to %func {
    transform.apply_patterns.canonicalization
    transform.apply_patterns.memref.fold_memref_alias_ops
  } : !transform.any_op
  transform.apply_cse to %func : !transform.any_op
  transform.apply_patterns to %func {
    transform.apply_patterns.canonicalization
  } : !transform.any_op
"""

LOWER_VECTORS = """\
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
"""

FUSE_PRODUCTS = """\
// Rows that came one by one multiply and add apart: allow that to be one operation.
transform.named_sequence @fuse_products(%func: !transform.any_op {transform.readonly}) {
  %both = transform.structured.match ops{["arith.mulf", "arith.addf"]} in %func
      : (!transform.any_op) -> !transform.any_op
  %contract = transform.param.constant #arith.fastmath<contract> -> !transform.any_param
  transform.annotate %both "fastmath" = %contract : !transform.any_op, !transform.any_param
  transform.yield
}
"""

SINK_CASTS = """\
    // Operands are widened before they are broadcast, so that the product is a contraction.
    transform.apply_patterns.vector.sink_ops
"""


def hoist_accumulators(widens: bool) -> str:
    """The sequence that keeps accumulators in registers.

    Args:
        widens: whether the body widens its operands.
    """
    sink = SINK_CASTS if widens else ""
    return f"""\
// Accumulators into registers: their loads and stores leave the reduction loops.
transform.named_sequence @hoist_accumulators(%func: !transform.any_op {{transform.readonly}}) {{
  // Before canonicalisation, which takes a reduction of extent 1 for no reduction.
  transform.apply_patterns to %func {{
{sink}    transform.apply_patterns.tensor.fold_tensor_subset_ops_into_vector_transfers
    transform.apply_patterns.vector.reduction_to_contract
    transform.apply_patterns.vector.transfer_permutation_patterns
  }} : !transform.any_op
  transform.apply_patterns to %func {{
    transform.apply_patterns.linalg.tiling_canonicalization
    transform.apply_patterns.canonicalization
    transform.apply_patterns.tensor.fold_tensor_subset_ops_into_vector_transfers
    transform.apply_patterns.vector.transfer_permutation_patterns
  }} : !transform.any_op
  transform.apply_cse to %func : !transform.any_op
  %loops = transform.structured.match ops{{["scf.for"]}} attributes{{accumulates}} in %func
      : (!transform.any_op) -> !transform.any_op
  transform.apply_licm to %loops : !transform.any_op
  transform.foreach %loops : !transform.any_op {{
  ^bb0(%loop: !transform.any_op):
    transform.loop.hoist_loop_invariant_subsets %loop : !transform.any_op
  }}
  transform.apply_patterns to %func {{
    transform.apply_patterns.canonicalization
    transform.apply_patterns.tensor.fold_tensor_subset_ops_into_vector_transfers
  }} : !transform.any_op
  transform.apply_cse to %func : !transform.any_op
  transform.yield
}}
"""


def pack_panels(lanes: int, sizes: list[int], panels_first: tuple[int, ...]) -> str:
    """The sequence that packs B to panels.

    Args:
        lanes: columns of a panel.
        sizes: packed size of each iteration dim of the contraction, 0 for none.
        panels_first: the outer permutation that puts the panels first.
    """
    return f"""\
// B to panels of {lanes} columns; C only changes its shape, to [rows, panels, columns].
transform.named_sequence @pack_panels_{lanes}(%op: !transform.any_op {{transform.consumed}})
    -> (!transform.any_op, !transform.any_op) {{
  %packed = transform.structured.pack %op packed_sizes = {sizes}
      : (!transform.any_op) -> !transform.any_op
  %plain = transform.get_producer_of_operand %packed[1]
      : (!transform.any_op) -> !transform.any_op
  %contraction, %pack, %none = transform.structured.pack_transpose %plain
      with_compute_op(%packed) outer_perm = {list(panels_first)}
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
}}
"""


def pack_epilogue(lanes: int, sizes: list[int], packed: dict[str, int]) -> str:
    """The sequence that lets the epilogue see C in the shape that packing B gives it.

    Args:
        lanes: columns of a panel.
        sizes: packed size of each iteration dim of the epilogue, 0 for none.
        packed: which of its operands change their shape, by name: C, and a bias along the
            columns.
    """
    parts = "".join(
        f"""\
  %{name} = transform.get_producer_of_operand %packed[{index}]
      : (!transform.any_op) -> !transform.op<"linalg.pack">
  %{name}_parts:3 = transform.structured.lower_pack %{name} : (!transform.op<"linalg.pack">)
      -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
          !transform.op<"linalg.transpose">)
"""
        for name, index in packed.items()
    )
    return f"""\
// The epilogue on C as [rows, panels, columns]; nothing moves.
transform.named_sequence @pack_epilogue_{lanes}(%op: !transform.any_op {{transform.consumed}})
    -> !transform.any_op {{
  %packed = transform.structured.pack %op packed_sizes = {sizes}
      : (!transform.any_op) -> !transform.any_op
{parts}  %result = transform.get_consumers_of_result %packed[0]
      : (!transform.any_op) -> !transform.op<"linalg.unpack">
  %r_parts:5 = transform.structured.lower_unpack %result : (!transform.op<"linalg.unpack">)
      -> (!transform.op<"tensor.empty">, !transform.op<"linalg.transpose">,
          !transform.op<"tensor.collapse_shape">, !transform.op<"tensor.extract_slice">,
          !transform.op<"linalg.copy">)
  %identity = transform.structured.generalize %r_parts#4
      : (!transform.op<"linalg.copy">) -> !transform.any_op
  transform.yield %packed : !transform.any_op
}}
"""
