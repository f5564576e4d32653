%group = hal.interface.workgroup.id[0] : index
%part = arith.index_cast %group : index to i64
