%$handle = transform.util.import_symbol @$symbol into %module if undefined
    : (!transform.any_op) -> !transform.any_op
