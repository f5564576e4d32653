module {
func.func @linear(%x: !torch.vtensor<[64,96],f32>, %w: !torch.vtensor<[128,96],f32>, %b: !torch.vtensor<[128],f32>) -> !torch.vtensor<[64,128],f32> {
  %0 = torch.aten.linear %x, %w, %b : !torch.vtensor<[64,96],f32>, !torch.vtensor<[128,96],f32>, !torch.vtensor<[128],f32> -> !torch.vtensor<[64,128],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[64,128],f32> -> !torch.vtensor<[64,128],f32>
  return %1 : !torch.vtensor<[64,128],f32>
}
func.func @linear3(%x: !torch.vtensor<[1,64,96],f32>, %w: !torch.vtensor<[128,96],f32>, %b: !torch.vtensor<[128],f32>) -> !torch.vtensor<[1,64,128],f32> {
  %0 = torch.aten.linear %x, %w, %b : !torch.vtensor<[1,64,96],f32>, !torch.vtensor<[128,96],f32>, !torch.vtensor<[128],f32> -> !torch.vtensor<[1,64,128],f32>
  return %0 : !torch.vtensor<[1,64,128],f32>
}
func.func @bmm(%x: !torch.vtensor<[12,64,96],f32>, %w: !torch.vtensor<[12,96,128],f32>) -> !torch.vtensor<[12,64,128],f32> {
  %0 = torch.aten.matmul %x, %w : !torch.vtensor<[12,64,96],f32>, !torch.vtensor<[12,96,128],f32> -> !torch.vtensor<[12,64,128],f32>
  return %0 : !torch.vtensor<[12,64,128],f32>
}
func.func @conv(%x: !torch.vtensor<[1,64,14,14],f32>, %w: !torch.vtensor<[96,64,3,3],f32>, %b: !torch.vtensor<[96],f32>) -> !torch.vtensor<[1,96,14,14],f32> {
  %int1 = torch.constant.int 1
  %int0 = torch.constant.int 0
  %false = torch.constant.bool false
  %s = torch.prim.ListConstruct %int1, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
  %e = torch.prim.ListConstruct %int0, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.convolution %x, %w, %b, %s, %s, %s, %false, %e, %int1 : !torch.vtensor<[1,64,14,14],f32>, !torch.vtensor<[96,64,3,3],f32>, !torch.vtensor<[96],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[1,96,14,14],f32>
  %1 = torch.aten.relu %0 : !torch.vtensor<[1,96,14,14],f32> -> !torch.vtensor<[1,96,14,14],f32>
  return %1 : !torch.vtensor<[1,96,14,14],f32>
}
func.func @convn(%x: !torch.vtensor<[1,64,14,14],f32>, %w: !torch.vtensor<[96,64,1,1],f32>) -> !torch.vtensor<[1,96,14,14],f32> {
  %int1 = torch.constant.int 1
  %int0 = torch.constant.int 0
  %none = torch.constant.none
  %false = torch.constant.bool false
  %s = torch.prim.ListConstruct %int1, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
  %e = torch.prim.ListConstruct %int0, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.convolution %x, %w, %none, %s, %e, %s, %false, %e, %int1 : !torch.vtensor<[1,64,14,14],f32>, !torch.vtensor<[96,64,1,1],f32>, !torch.none, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[1,96,14,14],f32>
  return %0 : !torch.vtensor<[1,96,14,14],f32>
}
func.func @dw(%x: !torch.vtensor<[1,64,14,14],f32>, %w: !torch.vtensor<[64,1,3,3],f32>, %b: !torch.vtensor<[64],f32>) -> !torch.vtensor<[1,64,14,14],f32> {
  %int1 = torch.constant.int 1
  %int64 = torch.constant.int 64
  %int0 = torch.constant.int 0
  %false = torch.constant.bool false
  %s = torch.prim.ListConstruct %int1, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
  %e = torch.prim.ListConstruct %int0, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.convolution %x, %w, %b, %s, %s, %s, %false, %e, %int64 : !torch.vtensor<[1,64,14,14],f32>, !torch.vtensor<[64,1,3,3],f32>, !torch.vtensor<[64],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[1,64,14,14],f32>
  return %0 : !torch.vtensor<[1,64,14,14],f32>
}
func.func @relu6(%x: !torch.vtensor<[64,96],f32>, %w: !torch.vtensor<[128,96],f32>, %b: !torch.vtensor<[128],f32>) -> !torch.vtensor<[64,128],f32> {
  %0 = torch.aten.linear %x, %w, %b : !torch.vtensor<[64,96],f32>, !torch.vtensor<[128,96],f32>, !torch.vtensor<[128],f32> -> !torch.vtensor<[64,128],f32>
  %1 = torch.aten.relu6 %0 : !torch.vtensor<[64,128],f32> -> !torch.vtensor<[64,128],f32>
  return %1 : !torch.vtensor<[64,128],f32>
}
func.func @hardtanh(%x: !torch.vtensor<[1,64,14,14],f32>, %w: !torch.vtensor<[64,1,3,3],f32>, %b: !torch.vtensor<[64],f32>) -> !torch.vtensor<[1,64,14,14],f32> {
  %int1 = torch.constant.int 1
  %int64 = torch.constant.int 64
  %int0 = torch.constant.int 0
  %lo = torch.constant.float 0.0
  %hi = torch.constant.float 6.0
  %false = torch.constant.bool false
  %s = torch.prim.ListConstruct %int1, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
  %e = torch.prim.ListConstruct %int0, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.convolution %x, %w, %b, %s, %s, %s, %false, %e, %int64 : !torch.vtensor<[1,64,14,14],f32>, !torch.vtensor<[64,1,3,3],f32>, !torch.vtensor<[64],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[1,64,14,14],f32>
  %1 = torch.aten.hardtanh %0, %lo, %hi : !torch.vtensor<[1,64,14,14],f32>, !torch.float, !torch.float -> !torch.vtensor<[1,64,14,14],f32>
  return %1 : !torch.vtensor<[1,64,14,14],f32>
}
func.func @clamp(%x: !torch.vtensor<[1,64,14,14],f32>, %w: !torch.vtensor<[64,1,3,3],f32>, %b: !torch.vtensor<[64],f32>) -> !torch.vtensor<[1,64,14,14],f32> {
  %int1 = torch.constant.int 1
  %int64 = torch.constant.int 64
  %int0 = torch.constant.int 0
  %lo = torch.constant.float 0.0
  %hi = torch.constant.float 6.0
  %false = torch.constant.bool false
  %s = torch.prim.ListConstruct %int1, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
  %e = torch.prim.ListConstruct %int0, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
  %0 = torch.aten.convolution %x, %w, %b, %s, %s, %s, %false, %e, %int64 : !torch.vtensor<[1,64,14,14],f32>, !torch.vtensor<[64,1,3,3],f32>, !torch.vtensor<[64],f32>, !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int -> !torch.vtensor<[1,64,14,14],f32>
  %1 = torch.aten.clamp %0, %lo, %hi : !torch.vtensor<[1,64,14,14],f32>, !torch.float, !torch.float -> !torch.vtensor<[1,64,14,14],f32>
  return %1 : !torch.vtensor<[1,64,14,14],f32>
}
func.func @rounded(%x: !torch.vtensor<[64,96],bf16>, %w: !torch.vtensor<[96,128],bf16>) -> !torch.vtensor<[64,128],bf16> {
  %0 = torch.aten.mm %x, %w : !torch.vtensor<[64,96],bf16>, !torch.vtensor<[96,128],bf16> -> !torch.vtensor<[64,128],bf16>
  %1 = torch.aten.relu %0 : !torch.vtensor<[64,128],bf16> -> !torch.vtensor<[64,128],bf16>
  return %1 : !torch.vtensor<[64,128],bf16>
}
}
