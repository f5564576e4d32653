
define i32 @${name}_supported() $attributes {
entry:
  br label %$first
${body}yes:
  br label %end
no:
  br label %end
end:
  %all = phi i32 [1, %yes], [0, %no]
  ret i32 %all
}
