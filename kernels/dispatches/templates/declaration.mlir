func.func private @$calls($types) -> i64
    attributes {hal.import.static, llvm.bareptr = true}
