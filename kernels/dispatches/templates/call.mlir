util.func private @$name($arguments) -> $type {
  $lines
  util.return $result : $type
}
