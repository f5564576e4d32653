look$at:
  %granted = call i64 asm sideeffect "syscall", "={ax},{ax},{di},{si},~{rcx},~{r11},~{memory},~{dirflag},~{fpsr},~{flags}"(i64 158, i64 4131, i64 18)
  %has$at = icmp eq i64 %granted, 0
  br i1 %has$at, label %NEXT, label %no
