look$at:
  %saved = call {i32, i32} asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)
  %xcr0 = extractvalue {i32, i32} %saved, 0
  %kept = and i32 %xcr0, $mask
  %has$at = icmp eq i32 %kept, $mask
  br i1 %has$at, label %NEXT, label %no
