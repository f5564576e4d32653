util.func private @$name($signature) -> $element {
  $body
  util.return $result : $element
}
