"""A pass writes into an operand's memory only where nobody reads that afterwards."""

import pytest

from tests.kernels.dispatches.passes.test_row_passes import EACH, ROWS, library, scaled_softmax
from tilewise.kernels.dispatches.compilation import calls_in, preprocessed, replaced_in
from tilewise.kernels.dispatches.cutting.cut import cut_apart
from tilewise.kernels.target import Target

WIDE = "tensor<6x40xf32>"
OWN = scaled_softmax(0.5, "%soft")
HEAD, PRODUCT, SOFTMAX = (
    OWN.partition("%p = ")[0],
    OWN[OWN.index("%p = ") : OWN.index("%s = ")],
    OWN[OWN.index("%s = ") : OWN.rindex("return")],
)
GIVEN = HEAD.replace("%x: tensor<6x9xf32>, %y: tensor<9x40xf32>", f"%p: {WIDE}")
SHAPED = HEAD.replace("%x: tensor<6x9xf32>, %y: tensor<9x40xf32>", "%flat: tensor<240xf32>")
END = f"return %soft, %soft : {WIDE}, {WIDE}\n}}"
OTHERS = f"""
util.func private @same(%x: {WIDE}) -> {WIDE} attributes {{inlining.policy = #util.inline.never}} {{
  util.return %x : {WIDE}
}}
"""
CALLED = f"%p = util.call @same(%p0) : ({WIDE}) -> {WIDE}\n"
TIMES_ONE = f"""%one = arith.constant dense<1.0> : {WIDE}
%p = linalg.generic {{indexing_maps = [{ROWS}, {ROWS}, {ROWS}],
    iterator_types = ["parallel", "parallel"]}}
  ins(%p0, %one : {WIDE}, {WIDE}) outs(%e : {WIDE}) {{
^bb0(%a: f32, %b: f32, %o: f32):
  %1 = arith.mulf %a, %b : f32
  linalg.yield %1 : f32
}} -> {WIDE}
"""
JUMPS = f"""
  %from = arith.constant 0 : i32
  %step = arith.constant 1 : i32
  %to = arith.constant 3 : i32
  cf.br ^head(%from, %z : i32, {WIDE})
^head(%i: i32, %so: {WIDE}):
  %more = arith.cmpi slt, %i, %to : i32
  cf.cond_br %more, ^again, ^end
^again:
  {SOFTMAX}
  %next = arith.addf %soft, %so : {WIDE}
  %j = arith.addi %i, %step : i32
  cf.br ^head(%j, %next : i32, {WIDE})
^end:
  {END.replace("%soft", "%so")}
"""
LOOP = f"""
  %from = arith.constant 0 : index
  %step = arith.constant 1 : index
  %to = arith.constant 3 : index
  %soft = scf.for %i = %from to %to step %step iter_args(%so = %z) -> ({WIDE}) {{
    {SOFTMAX.replace("%soft", "%one")}
    %next = arith.addf %one, %so : {WIDE}
    scf.yield %next : {WIDE}
  }}
"""


@pytest.fixture(scope="module")
def of_product(host: Target) -> str:
    """A library with the softmax of a product that nobody else reads."""
    (one,) = cut_apart(OWN.encode()).passes
    assert one.overwrites == 0
    return library((one,), host)


def writes_over(module: str, made: str) -> bool:
    """Whether a pass that a module calls writes over an operand; one is called."""
    after = preprocessed(module, made)
    assert len(calls_in(after)) == 1
    (line,) = (line for line in after.splitlines() if "flow.dispatch @tilewise_rows" in line)
    return line.rpartition("-> ")[2].startswith("%")


def test_what_the_pass_alone_reads_is_written_over(of_product: str) -> None:
    assert writes_over(OWN, of_product)


@pytest.mark.parametrize(
    "module",
    [
        GIVEN + SOFTMAX + END,
        f"{SHAPED}%p = tensor.expand_shape %flat [[0, 1]] output_shape [6, 40]"
        f" : tensor<240xf32> into {WIDE}\n{SOFTMAX}{END}",
        HEAD + PRODUCT + LOOP + END,
        (HEAD + PRODUCT + SOFTMAX + END).replace("return %soft, %soft", "return %soft, %p"),
        HEAD + PRODUCT + JUMPS,
        OTHERS + GIVEN.replace("%p:", "%p0:") + CALLED + SOFTMAX + END,
        GIVEN.replace("%p:", "%p0:") + TIMES_ONE + SOFTMAX + END,
    ],
    ids=[
        "argument", "shaped argument", "read again in a loop", "returned",
        "read again behind a jump", "argument of a function that returns it", "argument times 1",
    ],
)  # fmt: skip
def test_a_library_of_another_module_keeps_what_others_read(module: str, of_product: str) -> None:
    """IREE copies neither arguments nor what a loop reads again, and removes products by 1."""
    assert not writes_over(module, of_product)


def test_what_a_loop_reads_again_is_kept() -> None:
    assert [one.overwrites for one in cut_apart((HEAD + PRODUCT + LOOP + END).encode()).passes] == [
        None
    ]


def test_what_is_read_by_another_view_is_kept() -> None:
    """Every row reads the first one: it is not written before the others are computed."""
    view = f"""%view = tensor.expand_shape %p [[0], [1, 2]] output_shape [6, 40, 1]
        : {WIDE} into tensor<6x40x1xf32>
      %s = linalg.generic {{indexing_maps = [{ROWS}, affine_map<(d0, d1) -> (0, d1, 0)>, {ROWS}],
        iterator_types = ["parallel", "parallel"]}}
        ins(%p, %view : {WIDE}, tensor<6x40x1xf32>) outs(%e : {WIDE}) {{
      ^bb0(%a: f32, %b: f32, %o: f32):
        %1 = arith.mulf %a, %b : f32
        linalg.yield %1 : f32
      }} -> {WIDE}
    """
    module = HEAD + PRODUCT + view + SOFTMAX[SOFTMAX.index("%most = ") :] + END
    assert [one.overwrites for one in cut_apart(module.encode()).passes] == [None]


def test_a_maximum_with_an_unread_place_is_left_where_nothing_follows(of_product: str) -> None:
    """A call gives one result, and the op has two."""
    module = f"""
      func.func @main(%x: {WIDE}) -> tensor<6xf32> {{
        %least = arith.constant 0xFF800000 : f32
        %first = arith.constant 0 : i64
        %n = tensor.empty() : tensor<6xf32>
        %at = tensor.empty() : tensor<6xi64>
        %ln = linalg.fill ins(%least : f32) outs(%n : tensor<6xf32>) -> tensor<6xf32>
        %zn = linalg.fill ins(%first : i64) outs(%at : tensor<6xi64>) -> tensor<6xi64>
        %r:2 = linalg.generic {{indexing_maps = [{ROWS}, {EACH}, {EACH}],
            iterator_types = ["parallel", "reduction"]}}
            ins(%x : {WIDE}) outs(%ln, %zn : tensor<6xf32>, tensor<6xi64>) {{
        ^bb0(%a: f32, %o: f32, %p: i64):
          %i = linalg.index 1 : index
          %j = arith.index_cast %i : index to i64
          %m = arith.maximumf %a, %o : f32
          %c = arith.cmpf ogt, %a, %o : f32
          %s = arith.select %c, %j, %p : i64
          linalg.yield %m, %s : f32, i64
        }} -> (tensor<6xf32>, tensor<6xi64>)
        return %r#0 : tensor<6xf32>
      }}"""
    assert cut_apart(module.encode()).passes == ()
    assert replaced_in(module, of_product) == ()
