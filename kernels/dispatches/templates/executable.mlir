"hal.executable.source"() <{sym_name = "${name}_executable", sym_visibility = "private",
    objects = #hal.executable.objects<{$objects}>}> ({
  $exports
  builtin.module {
    $shims
  }
  hal.executable.source_end
}) : () -> ()
