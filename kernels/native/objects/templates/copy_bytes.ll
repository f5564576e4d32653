
define internal void @tilewise_copy_bytes(i64 %from, i64 %to, i64 %size) {
entry:
  %source = inttoptr i64 %from to ptr
  %target = inttoptr i64 %to to ptr
  %whole = and i64 %size, -16
  br label %blocks
blocks:
  %i = phi i64 [0, %entry], [%i.next, %block]
  %more = icmp ult i64 %i, %whole
  br i1 %more, label %block, label %rest
block:
  %there = getelementptr i8, ptr %source, i64 %i
  %these = load <16 x i8>, ptr %there, align 1
  %here = getelementptr i8, ptr %target, i64 %i
  store <16 x i8> %these, ptr %here, align 1
  %i.next = add i64 %i, 16
  br label %blocks
rest:
  %j = phi i64 [%whole, %blocks], [%j.next, %byte.of]
  %left = icmp ult i64 %j, %size
  br i1 %left, label %byte.of, label %done
byte.of:
  %last.there = getelementptr i8, ptr %source, i64 %j
  %this = load i8, ptr %last.there, align 1
  %last.here = getelementptr i8, ptr %target, i64 %j
  store i8 %this, ptr %last.here, align 1
  %j.next = add i64 %j, 1
  br label %rest
done:
  ret void
}
