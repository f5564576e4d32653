
define internal void @tilewise_fill(ptr %to, i8 %byte, i64 %size, i1 %_) {
entry:
  %one = insertelement <16 x i8> poison, i8 %byte, i32 0
  %all = shufflevector <16 x i8> %one, <16 x i8> poison, <16 x i32> zeroinitializer
  %whole = and i64 %size, -16
  br label %blocks
blocks:
  %i = phi i64 [0, %entry], [%i.next, %block]
  %more = icmp ult i64 %i, %whole
  br i1 %more, label %block, label %rest
block:
  %at = getelementptr i8, ptr %to, i64 %i
  store <16 x i8> %all, ptr %at, align 1
  %i.next = add i64 %i, 16
  br label %blocks
rest:
  %j = phi i64 [%whole, %blocks], [%j.next, %byte.of]
  %left = icmp ult i64 %j, %size
  br i1 %left, label %byte.of, label %done
byte.of:
  %last = getelementptr i8, ptr %to, i64 %j
  store i8 %byte, ptr %last, align 1
  %j.next = add i64 %j, 1
  br label %rest
done:
  ret void
}
