look$at:
  %least$at = call {i32, i32, i32, i32} asm sideeffect "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"(i32 $base, i32 0)
  %most$at = extractvalue {i32, i32, i32, i32} %least$at, 0
  %is$at = icmp uge i32 %most$at, $leaf
  br i1 %is$at, label %read$at, label %no
read$at:
  %leaf$at = call {i32, i32, i32, i32} asm sideeffect "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"(i32 $leaf, i32 $subleaf)
$tests  %has$at = icmp eq i32 $missed, 0
  br i1 %has$at, label %NEXT, label %no
