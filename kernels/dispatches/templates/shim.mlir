func.func @$name() {
  %zero = arith.constant 0 : index
  $bindings
  $part
  $asks
  %status = func.call @$calls($given) : ($types) -> i64
  %ok = arith.constant 0 : i64
  %refused = arith.cmpi ne, %status, %ok : i64
  scf.if %refused {
    "llvm.intr.trap"() : () -> ()
  }
  return
}
