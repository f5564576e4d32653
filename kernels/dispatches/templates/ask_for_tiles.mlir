// Linux answers at once where the process already has permission.
%number = arith.constant $number : i64
%request = arith.constant $request : i64
%tiles = arith.constant $tiles : i64
%answer = llvm.inline_asm has_side_effects "syscall",
    "={ax},{ax},{di},{si},~{rcx},~{r11},~{memory},~{dirflag},~{fpsr},~{flags}"
    %number, %request, %tiles : (i64, i64, i64) -> i64
%given = arith.constant 0 : i64
%is_refused = arith.cmpi ne, %answer, %given : i64
scf.if %is_refused {
  "llvm.intr.trap"() : () -> ()
}
